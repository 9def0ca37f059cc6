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
</style>
</head>
<body>
<nav><a href="/docs">Documentation</a></nav>
<div id="api"></div>
<script src="/docs/api/swagger-ui-bundle.js"></script>
<script src="/docs/api/docs.js"></script>
</body>
</html>
`;

const script = `SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  validatorUrl: null,
});
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
 * The API as a page people read, with every file from this server. Public, as the document is.
 */
export const apiPages: readonly StaticPage[] = [
  page("/docs/api", "text/html; charset=utf-8", () => html),
  page("/docs/api/docs.js", "text/javascript; charset=utf-8", () => script),
  page("/docs/api/swagger-ui-bundle.js", "text/javascript; charset=utf-8", () => Bun.file(scriptFile)),
  page("/docs/api/swagger-ui.css", "text/css; charset=utf-8", () => Bun.file(styleFile)),
];
