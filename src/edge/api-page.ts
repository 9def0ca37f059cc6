import swaggerStyle from "swagger-ui-dist/swagger-ui.css" with { type: "file" };
import swaggerScript from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };
import type { StaticPage } from "./http.ts";

const scriptFile: string = swaggerScript;
const styleFile: string = swaggerStyle;

const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>svc API</title>
<link rel="stylesheet" href="/docs/api/swagger-ui.css">
<style>
  nav { padding: 1rem 1rem 0; font-family: sans-serif; }
  form { display: flex; gap: .5rem; padding: 1rem; font-family: sans-serif; }
  input { flex: 1; max-width: 30rem; padding: .4rem; }
</style>
</head>
<body>
<nav><a href="/docs">Documentation</a></nav>
<form id="key" hidden>
  <input name="key" type="password" autocomplete="off" placeholder="API key (ifkey_…)" aria-label="API key">
  <button>Show the API</button>
  <output></output>
</form>
<div id="api"></div>
<script src="/docs/api/swagger-ui-bundle.js"></script>
<script src="/docs/api/docs.js"></script>
</body>
</html>
`;

// The document wants a credential: a dashboard's cookie serves, else the reader gives a key, which stays in
// this page.
const script = `const form = document.querySelector("form");
let key = "";
async function show() {
  const headers = key ? { Authorization: "Bearer " + key } : {};
  const answer = await fetch("/openapi.json", { headers });
  if (!answer.ok) {
    form.hidden = false;
    form.querySelector("output").textContent = key ? (await answer.json()).message : "";
    return;
  }
  form.hidden = true;
  SwaggerUIBundle({
    spec: await answer.json(),
    dom_id: "#api",
    deepLinking: true,
    validatorUrl: null,
    requestInterceptor(request) {
      if (key && !request.headers.Authorization) request.headers.Authorization = "Bearer " + key;
      return request;
    },
  });
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  key = new FormData(form).get("key").trim();
  show();
});
show();
`;

const careful = {
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  "Referrer-Policy": "no-referrer",
  "Content-Security-Policy":
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
};

const page = (path: string, contentType: string, body: () => BodyInit): StaticPage => ({
  path,
  handle: () =>
    new Response(body(), {
      headers: { ...careful, "Content-Type": contentType, "Cache-Control": "public, max-age=3600" },
    }),
});

/**
 * The API as a page people read, with every file from this server. Public: the document itself is not in it.
 */
export const apiPages: readonly StaticPage[] = [
  page("/docs/api", "text/html; charset=utf-8", () => html),
  page("/docs/api/docs.js", "text/javascript; charset=utf-8", () => script),
  page("/docs/api/swagger-ui-bundle.js", "text/javascript; charset=utf-8", () => Bun.file(scriptFile)),
  page("/docs/api/swagger-ui.css", "text/css; charset=utf-8", () => Bun.file(styleFile)),
];
