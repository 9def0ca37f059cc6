import { describe, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** A client that keeps its connection, as pools do. */
function keepAlive(url: string, key: string): Promise<Socket & { ask(path: string): Promise<string> }> {
  const { port, hostname } = new URL(url);
  const socket = connect(Number(port), hostname);
  const ask = (path: string) =>
    new Promise<string>((done, failed) => {
      socket.once("data", (bytes) => done(String(bytes)));
      socket.once("close", () => failed(new Error("closed without an answer")));
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    });
  return new Promise((done) => socket.once("connect", () => done(Object.assign(socket, { ask }))));
}

describe("a node that is told to stop", () => {
  test("says no to load balancers at once, serves on meanwhile, and sends its clients elsewhere", async () => {
    const server = await startTestServer({ engine: "libsql", settings: { drainNoticeMs: 600 } });
    const client = await keepAlive(server.url, server.adminKey);
    expect(await client.ask("/api/v1/routes")).not.toContain("Connection: close");
    const stopping = server.running.stop();
    const ready = await server.api("/ready");
    expect(ready).toMatchObject({ status: 503, body: { issues: ["draining"] } });
    let closed = false;
    client.once("close", () => {
      closed = true;
    });
    const last = await client.ask("/api/v1/routes");
    expect(last).toStartWith("HTTP/1.1 200");
    expect(last.toLowerCase()).toContain("connection: close");
    await until(() => closed, { about: "the connection to end", deadlineMs: 2_000, everyMs: 5 });
    const emitted = await server.rpc("SvcService", "Emit", { event: "late.one", data: {} });
    expect(emitted.status).toBe(200);
    await stopping;
    await expect(fetch(`${server.url}/health`)).rejects.toThrow();
    await server.home.remove();
  });
});
