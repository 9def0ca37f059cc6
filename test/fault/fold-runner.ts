import { appendFileSync } from "node:fs";
import { begin, type FoldState, fold } from "./fold-state.ts";

// A runner process that polls, folds and saves until it is killed: `fold-runner.ts NAME JOURNAL PROJECTION [build]`. With
// `build` it folds the generation that a rebuild has made, while there is one.
const [runnerId, journal, name, word] = process.argv.slice(2);
const { SVC_SERVER_URL: url, SVC_API_KEY: key } = process.env;
if (!runnerId || !journal || !name || !url)
  throw new Error("usage: fold-runner.ts NAME JOURNAL PROJECTION [build]");

// biome-ignore lint/suspicious/noExplicitAny: messages as they come
async function call(method: string, body: object): Promise<any> {
  const answer = await fetch(`${url}/svc.v1.ProjectionService/${method}`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(15_000),
  });
  if (!answer.ok) throw new Error(`${method}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** States as they are stored, known while one lease lasts and every save was answered. */
let known = new Map<string, FoldState>();
let lease = "";
/** Zero: the generation that is read. */
let building = "0";

async function stateOf(partition: string, generation: string): Promise<FoldState> {
  const found = known.get(partition);
  if (found) return found;
  const { state } = await call("GetProjection", { name, partition, generation });
  return (state as FoldState | undefined) ?? begin;
}

async function once(): Promise<void> {
  const own = { name, runnerId, ...(building !== "0" && { generation: building }) };
  const {
    events = [],
    fence,
    generation,
    buildingGeneration = "0",
  } = await call("PollProjectionEvents", {
    ...own,
    batchSize: 1_000,
  });
  if (word === "build") building = buildingGeneration;
  const now = `${generation} ${fence}`;
  if (now !== lease) known = new Map();
  lease = now;
  const last = new Map<string, { id: string; seq: string }>();
  const states = new Map<string, FoldState>();
  for (const event of events) {
    const partition = event.metadata.__partition as string;
    const before = states.get(partition) ?? (await stateOf(partition, generation));
    states.set(partition, fold(before, event.data.n));
    last.set(partition, event);
  }
  if (states.size === 0) {
    await Bun.sleep(word === "build" && building === "0" ? 200 : 50);
    return;
  }
  await call("SaveProjectionStates", {
    ...{ name, runnerId, fence, generation },
    states: [...states].map(([partitionKey, state]) => {
      const { id: lastEventId, seq: lastEventSeq } = last.get(partitionKey)!;
      return { partitionKey, state, lastEventId, lastEventSeq };
    }),
  });
  for (const [partition, state] of states) known.set(partition, state);
}

appendFileSync(journal, `${runnerId} ready\n`);
for (;;)
  try {
    // Nothing to build: the live runner has the one that is read.
    if (word === "build" && building === "0") {
      const { buildingGeneration = "0" } = await call("GetProjectionStatus", { name });
      building = buildingGeneration;
      if (building === "0") await Bun.sleep(200);
      continue;
    }
    await once();
  } catch {
    // What was saved is not known: everything is read again.
    known = new Map();
    building = "0";
    await Bun.sleep(200);
  }
