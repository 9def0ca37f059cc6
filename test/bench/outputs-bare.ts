/**
 * The floor of outputs: a bare Bun server whose readers are sent prepared bytes. POST /go?seconds=S&pace=P writes to the readers
 * of each run what a server of ours would, gathered as the SDK gathers, and ends them. Prints its port.
 */
import "./ends-with-parent.ts";

const gatherMs = 50;
const readers = new Map<string, Set<ReadableStreamDefaultController<Uint8Array>>>();
const encoder = new TextEncoder();
const now = () => performance.timeOrigin + performance.now();

async function write(seconds: number, pace: number): Promise<void> {
  const from = now();
  for (let made = 0; made < seconds * pace; ) {
    await Bun.sleep(gatherMs);
    let text = "";
    for (; made < Math.min(seconds * pace, ((now() - from) / 1_000) * pace); made++) {
      const data = { index: made, attempt: 1, data: { at: from + (made / pace) * 1_000, token: " word" } };
      text += `id: ${made}\nevent: chunk\ndata: ${JSON.stringify(data)}\n\n`;
    }
    for (const ofRun of readers.values()) {
      const bytes = encoder.encode(text);
      for (const reader of ofRun) reader.enqueue(bytes);
    }
  }
  for (const ofRun of readers.values()) for (const reader of ofRun) reader.close();
  readers.clear();
}

const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  idleTimeout: 0,
  fetch(request) {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname === "/go") {
      void write(Number(searchParams.get("seconds")), Number(searchParams.get("pace")));
      return new Response("done");
    }
    const ofRun = readers.get(pathname) ?? new Set();
    readers.set(pathname, ofRun);
    const body = new ReadableStream<Uint8Array>({
      start(reader) {
        ofRun.add(reader);
        reader.enqueue(encoder.encode(": output\n\n"));
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  },
});
console.log(`url ${server.url.origin}`);
