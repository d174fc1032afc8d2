// Before anything is drawn: the scheme that was chosen here, if one was. Not a module, on purpose.
"use strict";
{
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's scheme is as good.
  }
}
