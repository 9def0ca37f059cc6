// The floor of fan-out: sockets on one channel of a bare Bun server. POST /go?count=N publishes N frames like ours.
const { bytes } = JSON.parse(process.argv[2]!) as { bytes: number };
const text = "x".repeat(bytes);
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch(request, server) {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname === "/ws") return server.upgrade(request) ? undefined : new Response(null, { status: 400 });
    const count = Number(searchParams.get("count"));
    for (let sent = 0; sent < count; sent++) server.publish("all", text);
    return new Response("done");
  },
  websocket: {
    open: (socket) => void socket.subscribe("all"),
    message() {},
    backpressureLimit: 1 << 20,
    closeOnBackpressureLimit: true,
  },
});
console.log(JSON.stringify({ port: server.port }));

export {};
