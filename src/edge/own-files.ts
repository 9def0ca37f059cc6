import { hash } from "node:crypto";

// A page runs what this server sent and nothing else: no inline code, no eval, no sink for HTML.
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  // The one policy lets the dashboard start its own worker, by the path that the server gave the page.
  "trusted-types svc-worker",
].join("; ");

export const careful = {
  "Content-Security-Policy": policy,
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
  Vary: "Accept-Encoding",
};

/** For files whose names change with their content. */
export const immutable = "public, max-age=31536000, immutable";

/**
 * A file of the server's own pages, as it is sent. A blob is shared by all answers; of bytes Bun makes a copy
 * for each, which anybody may leave untaken.
 */
export interface OwnFile {
  contentType: string;
  etag: string;
  plain: Blob;
  gzipped: Blob;
}

export function served({
  contentType,
  bytes,
}: {
  contentType: string;
  bytes: Uint8Array<ArrayBuffer>;
}): OwnFile {
  const etag = `"${hash("sha256", bytes, "hex").slice(0, 32)}"`;
  const gzipped = Bun.gzipSync(bytes, { level: 9 });
  return { contentType, etag, plain: new Blob([bytes]), gzipped: new Blob([gzipped]) };
}

export function answer(
  request: Request,
  file: OwnFile,
  caching: string,
  own: Record<string, string> = careful,
): Response {
  const headers = { ...own, "Cache-Control": caching, ETag: file.etag };
  const known = request.headers.get("if-none-match");
  if (known?.split(",").some((one) => one.trim().replace(/^W\//, "") === file.etag))
    return new Response(null, { status: 304, headers });
  const zips = /\bgzip\b/.test(request.headers.get("accept-encoding") ?? "");
  return new Response(zips ? file.gzipped : file.plain, {
    headers: {
      ...headers,
      "Content-Type": file.contentType,
      ...(zips && { "Content-Encoding": "gzip" }),
    },
  });
}
