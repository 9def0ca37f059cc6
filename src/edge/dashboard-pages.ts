import type { StaticPage } from "./http.ts";
import { answer, careful, immutable, type OwnFile, served } from "./own-files.ts";

/** A file of the built dashboard; its name changes with its content. */
export interface DashboardFile {
  name: string;
  contentType: string;
  bytes: Uint8Array<ArrayBuffer>;
}

export const dashboardPath = "/dashboard";

interface Site {
  shell: OwnFile;
  signIn: OwnFile;
  files: ReadonlyMap<string, OwnFile>;
}

/** Where the link of the first start leads. */
const signInPath = `${dashboardPath}/sign-in`;

/** What every page reads first, as `lib/session.ts` asks for it: on its way before the scripts run. */
const firstReads = ["/api/v1/auth/session", "/api/v1/environments"];

const html = (tags: readonly string[]): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>svc</title>
<link rel="icon" href="data:,">
${tags.join("\n")}
</head>
<body>
<div id="app"></div>
<noscript>The dashboard needs JavaScript. The API does not: see /docs.</noscript>
</body>
</html>
`;

/** The one HTML page of the app: it names the entry files, which bring the others. */
function siteOf(files: readonly DashboardFile[]): Site {
  const tagsOf = (entry: string, tag: (path: string) => string) =>
    files
      .filter(({ name }) => entryOf(name) === entry)
      .map(({ name }) => tag(`${dashboardPath}/assets/${name}`));
  const entries = [
    ...tagsOf("style.css", (path) => `<link rel="stylesheet" href="${path}">`),
    ...tagsOf("layout-worker.js", (path) => `<meta name="layout-worker" content="${path}">`),
    ...tagsOf("main.js", (path) => `<script type="module" src="${path}"></script>`),
  ];
  const shell = (reads: readonly string[]) => {
    const preloads = reads.map(
      (path) => `<link rel="preload" as="fetch" crossorigin="anonymous" href="${path}">`,
    );
    const text = html([...entries, ...preloads]);
    return served({ contentType: "text/html; charset=utf-8", bytes: new TextEncoder().encode(text) });
  };
  return {
    shell: shell(firstReads),
    // It reads when somebody has signed in, and would be given what was answered before.
    signIn: shell([]),
    files: new Map(files.map(({ name, ...file }) => [name, served(file)])),
  };
}

/** `main.js` of `main-1a2b.js`; undefined for other files than the entries. */
const entryOf = (name: string): string | undefined => {
  const [, stem, ending] = /^(main|style|layout-worker)-\w+\.(js|css)$/.exec(name) ?? [];
  return stem && `${stem}.${ending}`;
};

/**
 * The dashboard: one page at every address below `/dashboard`, and its files. Public, as all that a page
 * shows is asked of the API with the reader's own session.
 */
export function dashboardPages(build: () => Promise<readonly DashboardFile[]>): readonly StaticPage[] {
  let building: Promise<Site> | undefined;
  const site = (): Promise<Site> => {
    building ??= build().then(siteOf);
    // The next reader tries again.
    building.catch(() => {
      building = undefined;
    });
    return building;
  };
  const shell = async (request: Request) => {
    const { shell: page, signIn } = await site();
    const isSignIn = new URL(request.url).pathname.startsWith(signInPath);
    return answer(request, isSignIn ? signIn : page, "no-cache");
  };
  return [
    {
      path: "/",
      handle: () =>
        new Response(null, { status: 302, headers: { ...careful, Location: `${dashboardPath}/` } }),
    },
    { path: dashboardPath, handle: shell },
    {
      path: `${dashboardPath}/assets/{name}`,
      async handle(request, { name = "" }) {
        const { files } = await site();
        const file = files.get(name);
        if (file) return answer(request, file, immutable);
        // While nodes are upgraded, a page of one version may ask a node of another for its entry.
        const own = [...files].find(([one]) => entryOf(one) !== undefined && entryOf(one) === entryOf(name));
        if (own) return answer(request, own[1], "no-store");
        const headers = { ...careful, "Cache-Control": "no-store" };
        return new Response("not found\n", { status: 404, headers });
      },
    },
    { path: `${dashboardPath}/{path...}`, handle: shell },
  ];
}
