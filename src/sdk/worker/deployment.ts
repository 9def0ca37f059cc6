import { codeHash } from "../steps/function.ts";
import type { SvcFunction } from "../steps/svc-function.ts";
import { ownModule } from "../wire/node-builtin.ts";
import { digestHex } from "../wire/payload.ts";
import { variable } from "../wire/transport.ts";

/** As on the server. */
const legal = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$/;

/** The build that the program names by option or variable, else what was built. Throws TypeError at once. */
export function deploymentOf(
  option: string | undefined,
  functions: readonly SvcFunction[],
): () => Promise<string> {
  const said = option === undefined ? variable("SVC_DEPLOYMENT") : option;
  let built: Promise<string> | undefined;
  if (said === undefined)
    return () => {
      built ??= builtDeployment(functions);
      return built;
    };
  if (typeof said === "string" && legal.test(said)) return async () => said;
  throw new TypeError(
    `${option === undefined ? "SVC_DEPLOYMENT" : "deployment"} must be 1 to 128 letters, digits and ._:/@+-, the first a letter or digit`,
  );
}

/**
 * First 16 hex digits of the SHA-256 of the program's own module and of the code of its functions: the same
 * in all processes of one build. Bun and Node may differ, for they print functions in their own ways.
 */
export async function builtDeployment(functions: readonly SvcFunction[]): Promise<string> {
  const byId = [...functions].sort((a, b) => (a.id < b.id ? -1 : 1));
  const hashes = await Promise.all(byId.map(({ handler }) => codeHash(handler)));
  return digestHex([await ownModule(), ...hashes].join("\n"), 8);
}

let workersNamed = 0;

export function newWorkerId(): string {
  const name = variable("SVC_WORKER_ID");
  if (name) return ++workersNamed === 1 ? name : `${name}-${workersNamed}`;
  const letters = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => (byte % 36).toString(36));
  return `worker-${Date.now().toString(36)}-${letters.join("")}`;
}
