import { sequenceWaitMsMax } from "../kit/limits.ts";
import type { LogWrite, Operation } from "../kit/operation.ts";
import { minSequenceHeader, minSequenceQuery, readSequence, type Sequence } from "../kit/sequence.ts";
import type { Edge, RequestCall } from "./call.ts";

const unitMs: Record<string, number> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/** The time left to answer a wait that runs out: a client that has given up would get no answer. */
const answerMsMax = 500;

/** What the caller's own deadline leaves of the longest wait. */
function waitMsOf({ headers }: Pick<Request, "headers">): number {
  const [, number, unit] = /^(\d{1,8})([HMSmun])$/.exec(headers.get("grpc-timeout") ?? "") ?? [];
  const connectMs = headers.get("connect-timeout-ms");
  const ms = unit === undefined ? Number(connectMs ?? Number.NaN) : Number(number) * unitMs[unit]!;
  if (Number.isNaN(ms)) return sequenceWaitMsMax;
  return Math.min(sequenceWaitMsMax, Math.max(0, ms - Math.min(answerMsMax, ms / 4)));
}

function leastOf({ headers, url }: Pick<Request, "headers" | "url">): Sequence | undefined {
  const sent = headers.get(minSequenceHeader);
  if (sent !== null) return readSequence(minSequenceHeader, sent);
  if (!url.includes(`${minSequenceQuery}=`)) return undefined;
  const asked = new URL(url).searchParams.get(minSequenceQuery);
  return asked === null ? undefined : readSequence(minSequenceQuery, asked);
}

/**
 * What a read that was sent a position has to wait for before it begins; undefined where nothing is missing.
 * A malformed position throws.
 */
export function minSequence(
  { sequences }: Edge,
  { waitsFor }: Pick<Operation, "waitsFor">,
  call: RequestCall,
  input: unknown,
): (() => Promise<void>) | undefined {
  if (!sequences || waitsFor === undefined) return undefined;
  const least = leastOf(call.request);
  if (!least) return undefined;
  const reads =
    typeof waitsFor === "function" ? () => waitsFor(input as never, call.environmentId) : waitsFor;
  const reached = sequences.reached(call.environmentId, least, reads);
  if (!reached) return undefined;
  const { caller, request } = call;
  return () => reached({ timeoutMs: waitMsOf(request), signal: call.signal, holder: caller.id });
}

/** What a write is answered in `X-Svc-Sequence`. */
export function sequenceOf(
  { sequences }: Edge,
  { log, positionOf, environmentOf }: LogWrite<unknown>,
  call: Pick<RequestCall, "environmentId">,
  output: unknown,
): string | undefined | Promise<string | undefined> {
  const position = positionOf(output);
  if (position === undefined) return undefined;
  return sequences?.sequenceAt(environmentOf?.(output) ?? call.environmentId, log, position);
}
