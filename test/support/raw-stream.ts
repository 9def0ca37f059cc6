export interface RawStream {
  heard: { text: string; over: boolean };
  cut(): void;
}

/** A stream of `PubSubService`: its answer as the bytes that came, what ends it included. */
export function listen(
  url: string,
  method: string,
  { headers, query = "" }: { headers?: Record<string, string>; query?: string },
  asked: object,
): RawStream {
  const body = new TextEncoder().encode(JSON.stringify(asked));
  const framed = new Uint8Array(5 + body.length);
  new DataView(framed.buffer).setUint32(1, body.length);
  framed.set(body, 5);
  const cut = new AbortController();
  const heard = { text: "", over: false };
  void (async () => {
    try {
      const answer = await fetch(`${url}/svc.v1.PubSubService/${method}${query}`, {
        method: "POST",
        headers: { ...headers, "content-type": "application/connect+json" },
        body: framed,
        signal: cut.signal,
      });
      const decoder = new TextDecoder();
      for await (const piece of answer.body!) heard.text += decoder.decode(piece, { stream: true });
    } catch {}
    heard.over = true;
  })();
  return { heard, cut: () => cut.abort() };
}
