/**
 * Readers of outputs in one process, over server-sent events. Says `ready` once each has its first byte; on SIGUSR2 how many
 * chunks came, how many not behind the one before, how many readers have ended, and how old chunks were.
 */
import "./ends-with-parent.ts";
import { percentile } from "./figures.ts";

const options = JSON.parse(process.argv[2]!) as {
  url: string;
  keys: readonly string[];
  runIds: readonly string[];
  readersOfEach: number;
};
const now = () => performance.timeOrigin + performance.now();
const ages: number[] = [];
let chunks = 0;
let wrong = 0;
let ended = 0;

async function read(runId: string, key: string, begun: () => void): Promise<void> {
  const answer = await fetch(`${options.url}/api/v1/runs/${runId}/outputs/tokens`, {
    headers: { authorization: `Bearer ${key}` },
  });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  const decoder = new TextDecoder();
  let rest = "";
  let next = 0;
  for await (const bytes of answer.body as unknown as AsyncIterable<Uint8Array>) {
    begun();
    const text = rest + decoder.decode(bytes, { stream: true });
    const at = now();
    let from = 0;
    // Without expressions or lists: what this program computes is missing to the server.
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n", from)) {
      if (text.startsWith("id: ", from)) {
        const index = Number.parseInt(text.slice(from + 4, from + 20), 10);
        chunks++;
        if (index !== next) wrong++;
        next = index + 1;
        const place = text.indexOf('"at":', from) + 5;
        ages.push(at - Number.parseFloat(text.slice(place, place + 24)));
      }
      from = end + 2;
    }
    rest = text.slice(from);
  }
  ended++;
}

await Promise.all(
  options.runIds.flatMap((runId, run) =>
    Array.from({ length: options.readersOfEach }, (_, place) => {
      const key = options.keys[(run + place) % options.keys.length]!;
      return new Promise<void>((begun, failed) => void read(runId, key, begun).catch(failed));
    }),
  ),
);

process.on("SIGUSR2", () => {
  // Sorting a million would hold up those that still read.
  const isOver = ended === options.runIds.length * options.readersOfEach;
  const sorted = isOver ? ages.toSorted((one, other) => one - other) : [];
  const [p50, p99, max] = [percentile(sorted, 0.5), percentile(sorted, 0.99), sorted.at(-1) ?? 0];
  process.stdout.write(`${JSON.stringify({ chunks, wrong, ended, p50, p99, max })}\n`);
});
// Ends by a signal or with its parent, not with its last reader.
setInterval(() => {}, 60_000);
process.stdout.write("ready\n");
