import type { Call, Permit, Thing } from "../../../kit/operation.ts";
import type { Definitions, DefinitionsCache } from "../functions/definition.ts";
import type { ReportBody } from "./report-body.ts";
import type { WorkerRecord } from "./rows.ts";

/** What deny policies let a worker's credential do. */
export interface Rights {
  /** Throws `permission_denied` unless it may serve these functions; asked again while the call lasts. */
  serve(serving: Serving): Promise<void>;
  mayHave(secrets: readonly string[]): Promise<boolean>;
  /** False when no policy denies any secret. */
  secretsAreScreened(): boolean | Promise<boolean>;
  /**
   * The report to commit. A yield that invokes a function the credential may not invoke becomes a failure of
   * the run.
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
  ...secrets().map((id) => ({ type: "secret", id, action: "secrets:read" })),
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
  reported(sent) {
    // A malformed yield is refused by `checkReport`.
    const functionId: unknown = sent.status === "yielded" ? sent.yield?.function_id : undefined;
    return typeof functionId !== "string" ? sent : invoking(call, sent, functionId);
  },
});

/**
 * Refusing the report would not help, because the next attempt would send it again. The run fails instead.
 */
async function invoking<Sent extends ReportBody>(
  call: Pick<Call, "screen">,
  sent: Sent,
  functionId: string,
): Promise<Sent> {
  const screen = await call.screen("functions:invoke", "function");
  const refused = await screen?.refusalOf([functionId]);
  if (!refused) return sent;
  const { yield: _, ...rest } = sent;
  const message = `function ${functionId.slice(0, 200)} may not be invoked by this worker: ${refused.message}`;
  return { ...rest, status: "failed", error: { message, code: "INVOKE_REFUSED", retryable: false } } as Sent;
}
