import { readFileSync } from "node:fs";
import { findProgram } from "../support/process.ts";
import { until } from "../support/until.ts";
import { median } from "./figures.ts";
import { type Bench, type Program, startBench, startProgram } from "./processes.ts";

/** 200 bytes of JSON. */
const data = { order: "o-1042", total: 42.5, note: "n".repeat(156) };
const burst = 100;

interface Readers {
  program: Program;
  count: number;
}

interface Told {
  bytes: number;
  frameBytes: number;
  closed: number;
}

const rssKb = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);

interface ReadersOptions {
  url: string;
  count: number;
  keys?: readonly string[];
  hello?: string;
  deaf?: number;
}

/** A key has at most 1,000 sockets at a node. */
const socketsOfKey = 900;

async function keysFor({ url, key }: Pick<Bench, "url" | "key">, count: number): Promise<string[]> {
  const keys: string[] = [];
  for (let number = 0; number * socketsOfKey < count; number++) {
    const answer = await fetch(`${url}/api/v1/apikeys`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ name: `readers ${number}`, role_ids: ["role_viewer"] }),
    });
    keys.push(((await answer.json()) as { key: string }).key);
  }
  return keys;
}

async function openReaders(options: ReadersOptions): Promise<Readers> {
  const program = await startProgram("fan-out-readers.ts", options, { first: "ready" });
  return { program, count: options.count - (options.deaf ?? 0) };
}

interface Figure {
  perCpuSecond: number;
  frameBytes: number;
  cpuUsPerBurst: number;
}

/** Bursts of events, each waited for until every reader has it; what the server spent on them. */
async function measure(
  server: Pick<Program, "cpu">,
  { program, count }: Readers,
  send: () => Promise<void>,
  bursts: number,
): Promise<Figure> {
  // One to warm up, and to learn the size of a frame.
  let before: Told = { bytes: 0, frameBytes: 0, closed: 0 };
  const round = async (wanted: number) => {
    await send();
    await until(
      async () => {
        const told = await program.tell<Told>();
        if (told.frameBytes === 0 || told.bytes - before.bytes < wanted * told.frameBytes) return false;
        before = told;
        return true;
      },
      { about: "a burst to arrive", deadlineMs: 120_000, everyMs: 10 },
    );
  };
  await round(burst * count);
  const cpu = server.cpu();
  for (let done = 0; done < bursts; done++) await round(burst * count);
  const spent = server.cpu() - cpu;
  return {
    perCpuSecond: (bursts * burst * count) / spent,
    frameBytes: before.frameBytes,
    cpuUsPerBurst: (spent / bursts) * 1e6,
  };
}

/** So many bursts that the clock ticks of /proc do not matter. */
const burstsFor = (count: number, perSecond: number) => Math.max(2, Math.ceil(perSecond / (count * burst)));

export async function fanOut(options: { count: number; rounds: number; databaseUrl: string }): Promise<void> {
  const { count, rounds, databaseUrl } = options;
  const bench = await startBench(databaseUrl, { alone: true });
  const emit = async () => {
    const answer = await fetch(`${bench.url}/svc.v1.SvcService/TriggerBatch`, {
      method: "POST",
      headers: { authorization: `Bearer ${bench.key}`, "content-type": "application/json" },
      body: JSON.stringify({ events: Array(burst).fill({ event: "order.placed", data }) }),
    });
    if (!answer.ok) throw new Error(await answer.text());
  };
  const hello = JSON.stringify({ type: "subscribe", subscription: { pattern: "order.*" } });
  const idle = rssKb(bench.server.pid);
  const readers = await openReaders({ url: bench.url, keys: await keysFor(bench, count), count, hello });
  const eachKb = (rssKb(bench.server.pid) - idle) / count;
  const first = await measure(bench.server, readers, emit, 2);
  const bytes = first.frameBytes - (first.frameBytes > 129 ? 4 : 2);

  const floorOf = async (script: string, runtime?: string[]) => {
    const program = await startProgram(script, { bytes }, { first: "{", ...(runtime && { runtime }) });
    const url = `http://127.0.0.1:${(JSON.parse(program.line) as { port: number }).port}`;
    const send = async () =>
      void (await (await fetch(`${url}/go?count=${burst}`, { method: "POST" })).text());
    return { program, readers: await openReaders({ url, count }), send };
  };
  const bare = await floorOf("fan-out-bare.ts");
  const library = await floorOf("fan-out-ws.mjs", [findProgram(["node"], "nodejs")]);

  const figures = { ours: [] as number[], bare: [] as number[], library: [] as number[] };
  const ratios = { bare: [] as number[], library: [] as number[] };
  for (let round = 0; round < rounds; round++) {
    const floor = await measure(bare.program, bare.readers, bare.send, burstsFor(count, 1_000_000));
    const ours = await measure(bench.server, readers, emit, burstsFor(count, 600_000));
    const ws = await measure(library.program, library.readers, library.send, burstsFor(count, 150_000));
    figures.bare.push(floor.perCpuSecond);
    figures.ours.push(ours.perCpuSecond);
    figures.library.push(ws.perCpuSecond);
    ratios.bare.push(ours.perCpuSecond / floor.perCpuSecond);
    ratios.library.push(ours.perCpuSecond / ws.perCpuSecond);
  }
  const thousands = (list: number[]) => `${Math.round(median(list) / 1_000)}k`;
  console.log(
    `fan-out to ${count}, frames of ${bytes} bytes, deliveries a CPU second: ours ${thousands(figures.ours)}, bare ${thousands(figures.bare)}, ws ${thousands(figures.library)}`,
  );
  console.log(
    `  to bare ${median(ratios.bare).toFixed(2)} (target >= 0.6), to ws ${median(ratios.library).toFixed(1)} (target >= 5)`,
  );
  console.log(`  ${eachKb.toFixed(1)} kB of RSS an idle subscriber (target < 20)`);
  await Promise.all(
    [bare, library].map(async (one) => {
      await one.readers.program.stop();
      await one.program.stop();
    }),
  );

  // A reader that never reads is closed after its megabyte; until then and then the others do not feel it.
  const alone = await measure(bench.server, readers, emit, burstsFor(count, 400_000));
  const deaf = await openReaders({ url: bench.url, keys: [bench.key], count: 1, deaf: 1, hello });
  const beside = await measure(bench.server, readers, emit, burstsFor(count, 400_000));
  console.log(
    `  beside one that never reads: ${Math.round(beside.perCpuSecond / 1_000)}k, without it ${Math.round(alone.perCpuSecond / 1_000)}k (${(beside.perCpuSecond / alone.perCpuSecond).toFixed(2)})`,
  );
  await deaf.program.stop();
  await readers.program.stop();
  await bench.stop();
}
