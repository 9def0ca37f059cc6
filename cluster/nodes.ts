import { join } from "node:path";
import { startDetached, untilReady } from "./processes.ts";
import {
  databaseUrlOf,
  logOf,
  natsUrlOf,
  nodeUrlOf,
  type PartState,
  type State,
  writeState,
} from "./state.ts";

const mainFile = join(import.meta.dirname, "../src/main.ts");

const grpcAway = 67;

/** Variables that say which node it is and where the rest is: `up` sets these itself. */
const ownVariables =
  /^(SVC_(PORT|HOST|NODE_ID|DB|DATABASE_URL|BOOTSTRAP_KEY_FILE|SERVER_URL|URL|API_KEY|ENV|LOG_LEVEL|TEST_\w+))$/;

/** What the shell of `up` sets for all nodes: SVC_LEASE_MS=5000 bun run cluster:up */
export const settingsOf = (environment: NodeJS.ProcessEnv): Record<string, string> =>
  Object.fromEntries(
    Object.entries(environment).filter(
      (entry): entry is [string, string] =>
        /^(SVC_|LOG_)/.test(entry[0]) && !ownVariables.test(entry[0]) && !!entry[1],
    ),
  );

export async function isReady(part: PartState): Promise<boolean> {
  const answer = await fetch(`${nodeUrlOf(part)}/ready`, { signal: AbortSignal.timeout(5_000) }).catch(
    () => undefined,
  );
  return answer?.ok === true;
}

/** A node that differs from the others in name and port only. */
export async function startNodePart(state: State, part: PartState): Promise<void> {
  const log = logOf(state, part);
  const nats = natsUrlOf(state);
  part.process = startDetached([process.execPath, "run", mainFile, "serve"], {
    folder: state.folder,
    log,
    environment: {
      LOG_FORMAT: "json",
      // 9190 beside 9123, 9191 beside 9124; free ones need no second.
      SVC_GRPC_PORT: state.ports.nodes === 0 ? "0" : String(part.port + grpcAway),
      ...state.settings,
      SVC_NODE_ID: part.name,
      SVC_PORT: String(part.port),
      SVC_DATABASE_URL: databaseUrlOf(state),
      // Not opened beside PostgreSQL; the master key that the first node makes lies in its folder.
      SVC_DB: join(state.folder, "svc.db"),
      ...(nats !== "" && { NATS_URL: nats }),
      SVC_BOOTSTRAP_KEY_FILE: state.keyFile,
    },
  });
  writeState(state);
  await untilReady(part.name, part.process, log, () => isReady(part), 30_000);
}
