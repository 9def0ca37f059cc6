import type { Call, Permit, Thing } from "../../kit/operation.ts";
import type { Definitions, DefinitionsCache } from "../functions/definition.ts";
import type { Report } from "./report.ts";
import type { WorkerRecord } from "./rows.ts";

/** What deny policies let a worker's credential do. */
export interface Rights {
  /** Throws unless it may serve these functions, now and as long as the call lasts. */
  serve(serving: Serving): Promise<void>;
  mayHave(secrets: readonly string[]): Promise<boolean>;
  /** The report as it counts: invoking what the credential may not invoke fails the run. */
  reported<Sent extends Report>(sent: Sent): Sent | Promise<Sent>;
}

/** What serving functions is about: the functions, and the secrets that come with their jobs. */
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

/** With the definitions as they are when policies are asked. */
export async function servingOf(
  { environmentId, id, functionIds }: Pick<WorkerRecord, "environmentId" | "id" | "functionIds">,
  definitions: Pick<DefinitionsCache, "known" | "of">,
): Promise<Serving> {
  const first = definitions.known(environmentId) ?? (await definitions.of(environmentId));
  const secretsIn = ({ functions }: Definitions) =>
    functionIds.flatMap((functionId) => functions.get(functionId)?.definition.secrets ?? []);
  return { workerId: id, functionIds, secrets: () => secretsIn(definitions.known(environmentId) ?? first) };
}

export const rightsOf = (call: Pick<Call, "screen">, permit: Permit): Rights => ({
  serve: permit,
  async mayHave(secrets) {
    const screen = await call.screen("secrets:read", "secret");
    if (screen) for (const name of secrets) if (await screen.refusalOf([name])) return false;
    return true;
  },
  reported(sent) {
    const functionId = sent.status === "yielded" ? sent.yield?.function_id : undefined;
    return functionId === undefined ? sent : invoking(call, sent, functionId);
  },
});

/** A refused report would come again for ever: the run fails instead, as by every other refusal of an invoke. */
async function invoking<Sent extends Report>(
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
