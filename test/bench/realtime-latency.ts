import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";
import { percentile } from "./figures.ts";
import { startBench } from "./processes.ts";

/** From the answer to an emit at one node to the frame on a socket at the other, in the clock of this one process. */
export async function latencyBetweenNodes(options: {
  databaseUrl: string;
  natsUrl: string;
  seconds: number;
}): Promise<void> {
  const { databaseUrl, natsUrl, seconds } = options;
  const here = await startBench(databaseUrl, { natsUrl, alone: true });
  const there = await startBench(databaseUrl, { natsUrl, alone: true, keyFile: here.keyFile });
  const perSecond = 200;
  const socket = await openSocket(there.url, { key: here.key });
  await socket.subscribe("events:late.>");
  const arrived = new Map<number, number>();
  socket.raw.addEventListener("message", ({ data }) => {
    const at = performance.now();
    const frame = JSON.parse(String(data)) as { type: string; data: { n: number } };
    if (frame.type === "event") arrived.set(frame.data.n, at);
  });
  const acked = new Map<number, number>();
  const emit = async (n: number) => {
    const answer = await fetch(`${here.url}/svc.v1.SvcService/Emit`, {
      method: "POST",
      headers: { authorization: `Bearer ${here.key}`, "content-type": "application/json" },
      body: JSON.stringify({ event: "late.a", data: { n } }),
    });
    const at = performance.now();
    if (!answer.ok) throw new Error(await answer.text());
    acked.set(n, at);
    await answer.arrayBuffer();
  };
  const count = perSecond * seconds;
  const warmUp = perSecond;
  const from = performance.now();
  const sending: Promise<void>[] = [];
  for (let n = 0; n < count + warmUp; n++) {
    const wait = from + (n * 1_000) / perSecond - performance.now();
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    sending.push(emit(n));
  }
  await Promise.all(sending);
  await until(() => arrived.size === count + warmUp, { about: "all frames", deadlineMs: 10_000 });
  const late = [...acked]
    .filter(([n]) => n >= warmUp)
    .map(([n, at]) => arrived.get(n)! - at)
    .sort((a, b) => a - b);
  const ms = (share: number) => percentile(late, share).toFixed(1);
  console.log(
    `from ack to a frame at the other node, ${perSecond} events/s for ${seconds} s, ms: p50 ${ms(0.5)} (target <= 10), p95 ${ms(0.95)} (target <= 40), p99 ${ms(0.99)}`,
  );
  socket.close();
  await there.stop();
  await here.stop();
}
