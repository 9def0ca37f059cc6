import type { Log } from "../../../kit/log.ts";
import { traceIn, traceOfRun } from "../../../kit/trace.ts";
import type { LogSequences } from "../../log/core/sequences.ts";
import type { DefinitionsCache, FunctionDefinition } from "../functions/definition.ts";
import type { DefinitionAt } from "../functions/definitions.ts";
import type { Job, JobEvent } from "../jobs/rules.ts";
import type { Secrets } from "../secrets/service.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { PollRequest } from "./queues.ts";
import {
  cannotCompensate,
  definitionUnread,
  eventDenied,
  jobCharsMax,
  jobTooLarge,
  secretsDenied,
  UnsentJob,
} from "./unsent.ts";

export interface AssignmentsDeps {
  dispatcher: Pick<Dispatcher, "poll">;
  definitions: DefinitionsCache;
  definitionAt: DefinitionAt;
  /** All events of a run that a batch began; none for another run. */
  eventsOfRun: (runId: string) => Promise<readonly JobEvent[]>;
  secrets: Pick<Secrets, "valuesOf">;
  sequences: Pick<LogSequences, "sequenceAt">;
  /** Called with each job that cannot be sent. */
  onUnsent: (job: Job, error: unknown) => void;
  log: Log;
  /** This server keeps spans of runs and steps. */
  keepsSpans?: boolean;
}

export type Assignments = ReturnType<typeof openAssignments>;

function charsOf({ event, completedSteps }: Job): number {
  let chars = event.data.length + (event.metadata?.length ?? 0);
  for (const { output, error } of completedSteps) chars += (output?.length ?? 0) + (error?.length ?? 0);
  return chars;
}

/**
 * Adds the place of its event, its trace and the values of the secrets that a job's function declares, as the
 * last step before the job is sent: a job that waits for its worker holds none.
 */
export function openAssignments(deps: AssignmentsDeps) {
  const {
    dispatcher,
    definitions,
    definitionAt,
    secrets,
    sequences,
    onUnsent,
    log,
    keepsSpans = false,
  } = deps;

  /** What the run is pinned to. No promise when that is the current version, as it mostly is. */
  function definitionOf(job: Job): FunctionDefinition | Promise<FunctionDefinition> {
    const record = definitions.known(job.environmentId)?.functions.get(job.functionId);
    if (record && record.version === job.functionVersion) return record.definition;
    return definitionAt(job.environmentId, job.functionId, job.functionVersion).catch((error) => {
      throw definitionUnread(job, error);
    });
  }

  /** The events of its batch. A run that was started directly has none. */
  async function addEvents(job: Job): Promise<void> {
    const events = await deps.eventsOfRun(job.runId).catch((error) => {
      throw new UnsentJob("EVENTS_UNREADABLE", "the events of its batch cannot be read", error);
    });
    if (events.length > 0) job.events = events;
  }

  async function withSecrets(job: Job, { rights, compensates }: PollRequest): Promise<Job> {
    if (job.compensating !== null && compensates === false) throw cannotCompensate(job);
    const chars = charsOf(job);
    if (chars > jobCharsMax) throw jobTooLarge(`${chars} characters`);
    const trace = traceIn(job.event.metadata);
    if (trace) job.trace = traceOfRun(trace, { runId: job.runId, keepsSpans });
    if (trace) job.keepsSpans = keepsSpans;
    const pinned = definitionOf(job);
    const { batch, secrets: names } = pinned instanceof Promise ? await pinned : pinned;
    if (batch) await addEvents(job);
    if (rights && !(await rights.mayRead(job.events ?? [job.event]))) throw eventDenied(job);
    const { position } = job.events?.at(-1) ?? job.event;
    const sequence = sequences.sequenceAt(job.environmentId, position);
    job.sequence = typeof sequence === "object" ? await sequence : sequence;
    if (names.length === 0) return job;
    if (rights && !(await rights.mayHave(names))) throw secretsDenied(job);
    const values = await secrets.valuesOf(job.environmentId, names).catch((error) => {
      throw new UnsentJob("SECRET_UNREADABLE", "a secret that the function declares cannot be read", error);
    });
    const missing = names.filter((name) => !Object.hasOwn(values, name));
    if (missing.length > 0)
      log.warn("job.secrets_missing", { runId: job.runId, functionId: job.functionId, names: missing });
    return { ...job, secrets: values };
  }

  /** One job that cannot be sent must not keep the others back. */
  async function ready(jobs: readonly Job[], request: PollRequest): Promise<Job[]> {
    const settled = await Promise.allSettled(jobs.map((job) => withSecrets(job, request)));
    return settled.flatMap((one, at) => {
      if (one.status === "fulfilled") return one.value;
      onUnsent(jobs[at]!, one.reason);
      return [];
    });
  }

  return {
    /** For workers that poll. Leaves out functions in push mode. */
    async toWorker(request: PollRequest): Promise<Job[]> {
      const known = definitions.known(request.environmentId) ?? (await definitions.of(request.environmentId));
      const isPush = (id: string) => known.functions.get(id)?.definition.mode === "push";
      const functionIds = request.functionIds.some(isPush)
        ? request.functionIds.filter((id) => !isPush(id))
        : request.functionIds;
      return ready(await dispatcher.poll({ ...request, functionIds }), request);
    },
    /** For this node's own calls to the endpoints of functions in push mode. */
    toPush: async (request: PollRequest) => ready(await dispatcher.poll(request), request),
  };
}
