import type { IncomingMessage, ServerResponse } from "node:http";

type Body = Uint8Array<ArrayBuffer> | string;

/** The body as frameworks that parse it leave it on the request. */
type MaybeParsed = IncomingMessage & { body?: unknown; rawBody?: Uint8Array<ArrayBuffer> | string };

async function bodyOf(message: MaybeParsed): Promise<Body> {
  if (message.rawBody !== undefined) return message.rawBody;
  if (message.readableEnded && message.body !== undefined) {
    // Compact JSON in the order of its keys is what the server signed.
    return typeof message.body === "string" ? message.body : JSON.stringify(message.body);
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of message as AsyncIterable<Uint8Array>) {
    chunks.push(chunk);
    size += chunk.length;
  }
  const body = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.length;
  }
  return body;
}

/**
 * A listener for `http.createServer` (and for Express and its like, which should leave the body unread or
 * keep `rawBody`) of a fetch handler such as `serve` makes.
 */
export function toNodeHandler(
  handler: (request: Request) => Promise<Response>,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (message, response) => {
    const gone = new AbortController();
    response.on("close", () => {
      if (!response.writableEnded) gone.abort();
    });
    try {
      const headers = new Headers();
      for (const [name, value] of Object.entries(message.headers))
        for (const one of Array.isArray(value) ? value : [value ?? ""]) headers.append(name, one);
      const path = (message as { originalUrl?: string }).originalUrl ?? message.url ?? "/";
      const hasBody = message.method !== "GET" && message.method !== "HEAD";
      const request = new Request(new URL(path, "http://localhost"), {
        method: message.method ?? "GET",
        headers,
        signal: gone.signal,
        ...(hasBody && { body: await bodyOf(message) }),
      });
      const answer = await handler(request);
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      response.end(new Uint8Array(await answer.arrayBuffer()));
    } catch {
      if (response.headersSent) response.destroy();
      else {
        response.writeHead(500, { "content-type": "application/json" });
        response.end(JSON.stringify({ error: { message: "the endpoint failed", code: "INTERNAL_ERROR" } }));
      }
    }
  };
}
