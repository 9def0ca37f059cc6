import type { StaticPage } from "./http.ts";
import { answer, type OwnFile, served } from "./own-files.ts";

// Loaded by their readers: an import takes the whole file into memory, and gives its path.
const scriptFile = () => import("swagger-ui-dist/swagger-ui-bundle.js", { with: { type: "file" } });
const styleFile = () => import("swagger-ui-dist/swagger-ui.css", { with: { type: "file" } });

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
  Vary: "Accept-Encoding",
};

const fileOf = async (load: () => Promise<{ default: string }>) => Bun.file((await load()).default);

function page(path: string, contentType: string, load: () => string | Promise<Blob>): StaticPage {
  let made: Promise<OwnFile> | undefined;
  const make = async () => served({ contentType, bytes: await new Blob([await load()]).bytes() });
  return {
    path,
    async handle(request) {
      made ??= make();
      return answer(request, await made, "public, max-age=3600", careful);
    },
  };
}

/**
 * The API as a page people read, with every file from this server. Public, as the document is.
 */
export const apiPages: readonly StaticPage[] = [
  page("/docs/api", "text/html; charset=utf-8", () => html),
  page("/docs/api/docs.js", "text/javascript; charset=utf-8", () => script),
  page("/docs/api/swagger-ui-bundle.js", "text/javascript; charset=utf-8", () => fileOf(scriptFile)),
  page("/docs/api/swagger-ui.css", "text/css; charset=utf-8", () => fileOf(styleFile)),
];
