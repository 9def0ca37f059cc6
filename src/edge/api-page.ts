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
<meta name="color-scheme" content="light dark">
<title>API · svc</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/api/swagger-ui.css">
<style>
  :root { color-scheme: light dark; --line: light-dark(#dde2e9, #2a323e); --accent: light-dark(#2f4fd0, #9db2ff); }
  body { margin: 0; background: light-dark(#ffffff, #0d1015); color: light-dark(#141922, #e9edf3); }
  header, .swagger-ui { font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
  header { display: flex; gap: 20px; padding: 14px 24px; border-bottom: 1px solid var(--line); }
  header a { color: var(--accent); }
  header .home { margin-right: auto; font-weight: 650; text-decoration: none; color: inherit; }
  .swagger-ui .wrapper { max-width: 1200px; padding: 0 24px; }
  .swagger-ui .info { margin: 28px 0; }
  .swagger-ui .scheme-container { box-shadow: none; border-bottom: 1px solid var(--line); }
  html.dark-mode, html.dark-mode body, html.dark-mode .swagger-ui .scheme-container { background: #0d1015; }
</style>
</head>
<body>
<header>
<a class="home" href="/docs">svc docs</a>
<a href="/docs">Documentation</a>
<a href="/dashboard">Dashboard</a>
</header>
<main id="api"></main>
<script src="/docs/api/swagger-ui-bundle.js"></script>
<script src="/docs/api/docs.js"></script>
</body>
</html>
`;

const script = `const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
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
