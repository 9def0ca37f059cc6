import { messageOf, SvcError } from "../wire/errors.ts";
import { safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { FoldFailure, WrittenState } from "./projection-fold.ts";

/** What every report of a runner carries. */
export interface RunnerLease {
  name: string;
  runnerId: string;
  generation: number;
  fence: number;
}

const statesMax = 1_000;
/** Characters of states in one request; one larger state goes alone. */
const charactersMax = 1_000_000;

const fieldsOf = ({ name, runnerId, generation, fence }: RunnerLease) => ({
  ...{ name, runnerId, generation: `${generation}`, fence: `${fence}` },
});

/** The state is written already: it goes into the request as it is. */
function stateText({ partition, text, last }: WrittenState): string {
  const place = JSON.stringify({
    ...{ partitionKey: partition, lastEventId: last.id, lastEventSeq: `${last.sequence}` },
    lastEventTime: last.timestamp,
  });
  const field = text.startsWith("{") ? "state" : "stateValue";
  return `${place.slice(0, -1)},"${field}":${text}}`;
}

/** The states in as few requests as they fit in. */
function* requestsOf(states: readonly WrittenState[]): Generator<WrittenState[]> {
  let one: WrittenState[] = [];
  let characters = 0;
  for (const state of states) {
    if (one.length >= statesMax || (one.length > 0 && characters + state.text.length > charactersMax)) {
      yield one;
      one = [];
      characters = 0;
    }
    one.push(state);
    characters += state.text.length;
  }
  if (one.length > 0) yield one;
}

async function send(
  transport: Transport,
  lease: RunnerLease,
  states: readonly WrittenState[],
): Promise<void> {
  const head = JSON.stringify(fieldsOf(lease));
  const text = `${head.slice(0, -1)},"states":[${states.map(stateText).join(",")}]}`;
  const path = "/svc.v1.ProjectionService/SaveProjectionStates";
  await transport.call({ method: "POST", path, text }, safe);
}

/** A state that the server never takes: too large, too deep. */
const isRefused = (error: unknown): boolean =>
  error instanceof SvcError && (error.code === "invalid_argument" || error.status === 413);

/** Gives the partitions whose states the server refuses; all others are saved. Throws SvcError. */
async function saveSome(
  transport: Transport,
  lease: RunnerLease,
  states: readonly WrittenState[],
): Promise<FoldFailure[]> {
  try {
    await send(transport, lease, states);
    return [];
  } catch (error) {
    if (!isRefused(error)) throw error;
    const [first] = states;
    if (states.length === 1 && first) return [{ partition: first.partition, event: first.last, error }];
    const half = Math.ceil(states.length / 2);
    const refused = await saveSome(transport, lease, states.slice(0, half));
    return [...refused, ...(await saveSome(transport, lease, states.slice(half)))];
  }
}

export async function saveStates(
  transport: Transport,
  lease: RunnerLease,
  states: readonly WrittenState[],
): Promise<FoldFailure[]> {
  const refused: FoldFailure[] = [];
  for (const some of requestsOf(states)) refused.push(...(await saveSome(transport, lease, some)));
  return refused;
}

export async function acknowledge(
  transport: Transport,
  lease: RunnerLease,
  last: { id: string; sequence: number },
): Promise<void> {
  const message = { ...fieldsOf(lease), lastEventId: last.id, lastEventSeq: `${last.sequence}` };
  await transport.rpc("ProjectionService/AckProjectionEvents", message, safe);
}

export async function reportFailure(
  transport: Transport,
  lease: RunnerLease,
  { partition, event, error }: FoldFailure,
): Promise<void> {
  const message = {
    ...{ ...fieldsOf(lease), partitionKey: partition, message: messageOf(error) },
    ...{ eventId: event.id, eventSeq: `${event.sequence}` },
  };
  await transport.rpc("ProjectionService/ReportProjectionError", message, safe);
}
