import { listenEdge } from "../../src/edge/http.ts";
import { services } from "../../src/edge/services.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { madeUpOperations } from "../operations/edge-support.ts";

/**
 * CPU microseconds that the server spends on one small JSON POST, beside those of a bare Bun.serve that only parses and
 * answers JSON. Server and callers are two processes: `bun run test/bench/edge.ts`.
 */
const callers = 32;
const secondsEach = 4;

const body = JSON.stringify({ event: "order.created", data: { id: 1, items: ["a", "b"], total: 12.5 } });

async function serve(): Promise<void> {
  const clock = systemClock();
  const caller = { kind: "key" as const, id: "ak", orgId: "org", roles: ["admin"] };
  const edge = await listenEdge({
    edge: {
      clock,
      ids: systemIds(clock),
      log: silentLog,
      authenticate: async () => ({ caller, environmentId: "env_1" }),
      gate: () => {},
      observe: () => {},
    },
    registry: madeUpOperations({ ran: [], streams: { open: 0, ended: 0 } }),
    services,
    hostname: "127.0.0.1",
    port: 0,
    bodyBytesMax: 4 * 1024 * 1024,
  });
  const floor = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      const { event } = (await request.json()) as { event: string };
      return new Response(JSON.stringify({ eventId: event }), {
        headers: { "content-type": "application/json" },
      });
    },
  });
  process.stdout.write(`${JSON.stringify({ edge: edge.url, floor: String(floor.url) })}\n`);
}

const cpuTicksPerSecond = 100;

async function cpuMicroseconds(pid: number): Promise<number> {
  const stat = await Bun.file(`/proc/${pid}/stat`).text();
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return ((Number(fields[11]) + Number(fields[12])) / cpuTicksPerSecond) * 1e6;
}

async function load(url: string, text: string, pid: number): Promise<{ perCall: number; rate: number }> {
  const headers = { "Content-Type": "application/json", Authorization: "Bearer good" };
  let calls = 0;
  const until = performance.now() + secondsEach * 1000;
  const before = await cpuMicroseconds(pid);
  await Promise.all(
    Array.from({ length: callers }, async () => {
      while (performance.now() < until) {
        const answer = await fetch(url, { method: "POST", headers, body: text });
        await answer.text();
        if (!answer.ok) throw new Error(`answered ${answer.status}`);
        calls++;
      }
    }),
  );
  return { perCall: ((await cpuMicroseconds(pid)) - before) / calls, rate: calls / secondsEach };
}

async function measure(): Promise<void> {
  const server = Bun.spawn([process.execPath, import.meta.path, "serve"], { stdout: "pipe" });
  try {
    const reader = server.stdout.getReader();
    const { edge, floor } = JSON.parse(new TextDecoder().decode((await reader.read()).value));
    const targets: [string, string, string][] = [
      ["floor: bare Bun.serve", floor, body],
      ["RPC, hot JSON", `${edge}/svc.v1.PubSubService/Emit`, body],
      ["floor: bare Bun.serve", floor, body],
      ["RPC, through messages", `${edge}/svc.v1.SvcService/GetRun`, '{"id":"run_1"}'],
      ["REST", `${edge}/api/v1/things`, '{"name":"n","limit":3}'],
      ["floor: bare Bun.serve", floor, body],
    ];
    for (const [, url, text] of targets.slice(0, 2)) await load(url, text, server.pid);
    for (const [name, url, text] of targets) {
      const { perCall, rate } = await load(url, text, server.pid);
      process.stdout.write(
        `${name.padEnd(24)} ${perCall.toFixed(1).padStart(7)} µs CPU ${rate.toFixed(0).padStart(7)}/s\n`,
      );
    }
  } finally {
    server.kill();
  }
}

await (process.argv[2] === "serve" ? serve() : measure());
