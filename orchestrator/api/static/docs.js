"use strict";

// Nothing is fetched from elsewhere: no validator badge, no address but this server's own.
window.ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  persistAuthorization: false,
  queryConfigEnabled: false,
  validatorUrl: null,
  onComplete: signIn,
});

// The link that `serve` prints carries a token: it is used, and leaves the address bar.
function signIn() {
  const here = new URL(window.location.href);
  const token = here.searchParams.get("token");
  if (token === null) {
    return;
  }
  window.ui.preauthorizeApiKey("HTTPBearer", token);
  here.searchParams.delete("token");
  window.history.replaceState(null, "", here);
}
