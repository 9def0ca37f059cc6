// Fan-out with the ws library, on Node, where it is at home: a send for every socket.
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

const { bytes } = JSON.parse(process.argv[2]);
const text = "x".repeat(bytes);
const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
const server = createServer((request, response) => {
  const count = Number(new URL(request.url, "http://bench").searchParams.get("count"));
  for (let sent = 0; sent < count; sent++) for (const socket of sockets.clients) socket.send(text);
  response.end("done");
});
server.on("upgrade", (request, socket, head) => sockets.handleUpgrade(request, socket, head, () => {}));
server.listen(0, "127.0.0.1", 20_000, () => console.log(JSON.stringify({ port: server.address().port })));
// The bench is gone: so is this.
process.stdin.on("end", () => process.exit(1));
process.stdin.resume();
