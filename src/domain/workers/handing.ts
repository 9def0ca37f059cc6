import type { Log } from "../../kit/log.ts";
import type { DefinitionsCache, FunctionDefinition } from "../functions/definition.ts";
import type { Secrets } from "../secrets/service.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { Job } from "./job.ts";
import type { Asking } from "./lanes.ts";

export interface HandingDeps {
  dispatcher: Pick<Dispatcher, "take">;
  definitions: DefinitionsCache;
  /** The definition that a run is pinned to. */
  definitionAt: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  secrets: Pick<Secrets, "valuesOf">;
  /** Jobs that cannot be handed over return to the queue. */
  giveBack: (jobs: readonly Job[]) => void;
  log: Log;
}

export interface Handing {
  /** For workers that pull: functions in push mode are none of theirs. */
  toWorker(asking: Asking): Promise<Job[]>;
  /** For the node's own caller of endpoints. */
  toPush(asking: Asking): Promise<Job[]>;
}

/** The last stop of jobs before they leave: with the values of the secrets that their functions declare, and only there. */
export function openHanding(deps: HandingDeps): Handing {
  const { dispatcher, definitions, definitionAt, secrets, giveBack, log } = deps;

  /** Without waiting where the current definition is the pinned one, as it mostly is. */
  function secretsOf(job: Job): readonly string[] | Promise<readonly string[]> {
    const record = definitions.known(job.environmentId)?.functions.get(job.functionId);
    if (record && record.version === job.functionVersion) return record.definition.secrets;
    return definitionAt(job.environmentId, job.functionId, job.functionVersion).then(
      (definition) => definition.secrets,
    );
  }

  async function withSecrets(jobs: Job[], mayHave?: Asking["mayHave"]): Promise<Job[]> {
    if (jobs.length === 0) return jobs;
    const denied: Job[] = [];
    try {
      const handed = await Promise.all(
        jobs.map(async (job) => {
          const asked = secretsOf(job);
          const names = asked instanceof Promise ? await asked : asked;
          if (names.length === 0) return job;
          if (mayHave && !(await mayHave(names))) {
            log.warn("job.secrets_denied", { runId: job.runId, functionId: job.functionId });
            denied.push(job);
            return job;
          }
          const values = await secrets.valuesOf(job.environmentId, names);
          const missing = names.filter((name) => !Object.hasOwn(values, name));
          if (missing.length > 0)
            log.warn("job.secrets_missing", { runId: job.runId, functionId: job.functionId, names: missing });
          return { ...job, secrets: values };
        }),
      );
      if (denied.length === 0) return handed;
      giveBack(denied);
      return handed.filter((job) => !denied.includes(job));
    } catch (error) {
      log.warn("job.secrets_unread", { error: String(error) });
      giveBack(jobs);
      return [];
    }
  }

  return {
    async toWorker(asking) {
      const known = definitions.known(asking.environmentId) ?? (await definitions.of(asking.environmentId));
      const isPush = (id: string) => known.functions.get(id)?.definition.mode === "push";
      const functionIds = asking.functionIds.some(isPush)
        ? asking.functionIds.filter((id) => !isPush(id))
        : asking.functionIds;
      return withSecrets(await dispatcher.take({ ...asking, functionIds }), asking.mayHave);
    },
    toPush: async (asking) => withSecrets(await dispatcher.take(asking)),
  };
}
