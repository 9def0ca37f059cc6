import {
  allThingsOf,
  screenOfKinds,
  type ThingScreen,
  thingsOf,
  thingsOfEvent,
} from "../../../gate/things.ts";
import type { Call, Permit, Thing } from "../../../kit/operation.ts";
import type { JobRights } from "../dispatch/queues.ts";
import type { Definitions, DefinitionsCache } from "../functions/definition.ts";
import type { ReportBody } from "./report-body.ts";
import type { WorkerRecord } from "./rows.ts";

/** What deny policies let a worker's credential do. */
export interface Rights extends JobRights {
  /** Throws `permission_denied` unless it may serve these functions; asked again while the call lasts. */
  serve(serving: Serving): Promise<void>;
  /** False when no policy denies any secret. */
  secretsAreScreened(): boolean | Promise<boolean>;
  /**
   * The report to commit. A yield that invokes a function the credential may not invoke, or waits for what it
   * may not read, becomes a failure of the run.
   */
  reported<Sent extends ReportBody>(sent: Sent): Sent | Promise<Sent>;
}

/** What a worker serves: functions, and with their jobs the secrets that they declare. */
export interface Serving {
  workerId: string;
  functionIds: readonly string[];
  secrets: () => readonly string[];
}

export const isServing = (input: object): input is Serving => "functionIds" in input;

export const functionThing = (id: string): Thing => ({ type: "function", id });

export const servedThings = ({ functionIds, secrets }: Serving): Thing[] => [
  ...functionIds.map(functionThing),
  ...thingsOf("secret", ...secrets()),
];

/**
 * Throws unless the worker's credential may serve its functions. Definitions are read only when a policy
 * denies secrets.
 */
export async function requireServing(
  rights: Rights | undefined,
  { environmentId, id, functionIds }: Pick<WorkerRecord, "environmentId" | "id" | "functionIds">,
  definitions: Pick<DefinitionsCache, "known" | "current">,
): Promise<void> {
  if (!rights) return;
  const screened = rights.secretsAreScreened();
  const now =
    (screened instanceof Promise ? await screened : screened) && (await definitions.current(environmentId));
  const secretsIn = ({ functions }: Pick<Definitions, "functions">) =>
    functionIds.flatMap((functionId) => functions.get(functionId)?.definition.secrets ?? []);
  await rights.serve({
    workerId: id,
    functionIds,
    secrets() {
      const known = definitions.known(environmentId) || now;
      return known ? secretsIn(known) : [];
    },
  });
}

export const rightsOf = (call: Pick<Call, "screen">, permit: Permit): Rights => ({
  serve: permit,
  secretsAreScreened() {
    const screen = call.screen("secrets:read", "secret");
    return screen instanceof Promise ? screen.then((found) => found !== undefined) : screen !== undefined;
  },
  async mayHave(secrets) {
    const screen = await call.screen("secrets:read", "secret");
    if (screen) for (const name of secrets) if (await screen.refusalOf([name])) return false;
    return true;
  },
  mayRead(events) {
    const screen = screenOfKinds(call, "event", "stream");
    return screen === undefined || allows(screen, events);
  },
  reported(sent) {
    if (sent.status !== "yielded") return sent;
    // A malformed yield is refused by `checkReport`.
    const asked = Array.isArray(sent.yields) ? sent.yields : [sent.yield];
    const isReading = asked.some(
      (one) =>
        typeof one?.function_id === "string" ||
        conditionsOf(one).some((condition) => awaitedThings(condition).length > 0),
    );
    return isReading ? screened(call, sent, asked) : sent;
  },
});

type AskedYield = Partial<NonNullable<ReportBody["yield"]>> | null | undefined;

const conditionsOf = (asked: AskedYield): readonly unknown[] =>
  Array.isArray(asked?.conditions) ? asked.conditions : [asked?.event_filter ?? {}];

async function screened<Sent extends ReportBody>(
  call: Pick<Call, "screen">,
  sent: Sent,
  asked: readonly AskedYield[],
): Promise<Sent> {
  for (const one of asked) {
    const functionId: unknown = one?.function_id;
    const judged =
      typeof functionId === "string"
        ? await invoking(call, sent, functionId)
        : await waiting(call, sent, conditionsOf(one));
    if (judged !== sent) return judged;
  }
  return sent;
}

async function invoking<Sent extends ReportBody>(
  call: Pick<Call, "screen">,
  sent: Sent,
  functionId: string,
): Promise<Sent> {
  const screen = await call.screen("functions:invoke", "function");
  const refused = await screen?.refusalOf([functionId]);
  if (!refused) return sent;
  const message = `function ${functionId.slice(0, 200)} may not be invoked by this worker: ${refused.message}`;
  return failing(sent, { message, code: "INVOKE_REFUSED" });
}

/** A wait that is met tells a version or a value: what deny policies keep from reading is not waited for. */
async function waiting<Sent extends ReportBody>(
  call: Pick<Call, "screen">,
  sent: Sent,
  conditions: readonly unknown[],
): Promise<Sent> {
  const screen = await screenOfKinds(call, "event", "stream", "kv");
  for (const things of screen ? conditions.map(awaitedThings) : []) {
    const refused = await screen!.refusalOf(things);
    if (!refused) continue;
    const [{ type, id }] = things as [Thing];
    const message = `${type} ${id.slice(0, 200)} may not be waited for by this worker: ${refused.message}`;
    return failing(sent, { message, code: "WAIT_REFUSED" });
  }
  return sent;
}

async function allows(
  opening: ThingScreen | Promise<ThingScreen | undefined>,
  events: Parameters<Rights["mayRead"]>[0],
): Promise<boolean> {
  const screen = await opening;
  for (const event of events) if (await screen?.refusalOf(thingsOfEvent(event))) return false;
  return true;
}

/** What a condition reads. An event that is met is handed over whole, and may be of any stream. */
function awaitedThings(condition: unknown): Thing[] {
  const { event, stream, key } = (condition ?? {}) as Record<"event" | "stream" | "key", unknown>;
  if (typeof event === "string") return [...thingsOfEvent({ name: event }), ...allThingsOf("stream")];
  const { entity_id: id } = (stream ?? {}) as { entity_id?: unknown };
  if (typeof id === "string") return thingsOf("stream", id);
  const { bucket, key: own } = (key ?? {}) as { bucket?: unknown; key?: unknown };
  if (typeof bucket !== "string" || typeof own !== "string") return [];
  return thingsOf("kv", `${bucket}/${own}`, bucket);
}

/** Refusing the report would not help, as the next attempt would send it again. The run fails instead. */
function failing<Sent extends ReportBody>(sent: Sent, error: { message: string; code: string }): Sent {
  const { yield: _, yields: __, ...rest } = sent;
  return { ...rest, status: "failed", error: { ...error, retryable: false } } as Sent;
}
