import type { StaticPage } from "./http.ts";
import { answer, careful, immutable, type OwnFile, served } from "./own-files.ts";

/** The documentation as it is sent: pages by name, the first one empty, and the files that they load. */
export interface DocsSite {
  pages: ReadonlyMap<string, string>;
  notFound: string;
  /** Their names change with their content. */
  files: readonly { name: string; contentType: string; bytes: Uint8Array<ArrayBuffer> }[];
}

const ofHtml = (html: string): OwnFile =>
  served({ contentType: "text/html; charset=utf-8", bytes: new TextEncoder().encode(html) });

const prepared = ({ pages, notFound, files }: DocsSite) => ({
  pages: new Map([...pages].map(([name, html]) => [name, ofHtml(html)])),
  notFound: new Blob([notFound]),
  files: new Map(files.map(({ name, ...file }) => [name, served(file)])),
});

/** The documentation at `/docs`: public, made once, when somebody first reads it. */
export function docsPages(build: () => Promise<DocsSite>): readonly StaticPage[] {
  let building: Promise<ReturnType<typeof prepared>> | undefined;
  const site = () => {
    building ??= build().then(prepared);
    // The next reader tries again.
    building.catch(() => {
      building = undefined;
    });
    return building;
  };
  const absent = (html: Blob) =>
    new Response(html, {
      status: 404,
      headers: { ...careful, "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8" },
    });
  const page: StaticPage["handle"] = async (request, { name = "" }) => {
    const { pages, notFound } = await site();
    const found = pages.get(name);
    return found ? answer(request, found, "no-cache") : absent(notFound);
  };
  return [
    { path: "/docs", handle: page },
    { path: "/docs/{name}", handle: page },
    {
      path: "/docs/assets/{name}",
      async handle(request, { name = "" }) {
        const { files, notFound } = await site();
        const file = files.get(name);
        return file ? answer(request, file, immutable) : absent(notFound);
      },
    },
  ];
}
