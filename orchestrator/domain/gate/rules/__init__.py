"""The rules: each evaluates a context and yields one result per place that it applies to.

A new rule is a function in a module here, and has three more places:

- its tuple of a rules version in `orchestrator.domain.gate.evaluate`. The plain name is the current
  rule; one that it superseded has the suffix of the last version that uses it (``jobs_v2``), since
  stored verdicts are replayed by the rules that made them;
- its kind in `orchestrator.domain.gate.rule_context`: among those that an exception or a waiver may
  name (``ALONE``, or with a platform, cell or job), or with the reason among those that none may;
- its kind in the list at `orchestrator.domain.gate.verdict.RuleResult.kind`.

Its settings, if any, are a record of `orchestrator.domain.gate.policy`.
"""
