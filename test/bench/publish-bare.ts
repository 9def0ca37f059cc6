/** What HTTP alone costs on this machine: a bare Bun.serve that parses a publish, stores nothing and answers. Prints its URL. */
const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  async fetch(request) {
    const { topic } = (await request.json()) as { topic: string };
    return Response.json({ eventId: topic, sequence: "1" });
  },
});
console.log(`url ${server.url.origin}`);
