import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow, shownFunctions } from "../../../gate/things.ts";
import { WorkerService } from "../../../gen/svc/v1/worker_pb.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { checkedPerItem } from "../../../kit/explain.ts";
import { reportBytesMax } from "../../../kit/limits.ts";
import { duplex, listedById, rpcDuplex, type Thing, unary } from "../../../kit/operation.ts";
import { version } from "../../../kit/version.ts";
import { type AssignedJob, assignmentJson } from "../jobs/rules.ts";
import { leaseIn } from "./refused-report.ts";
import {
  cancelledField,
  heldField,
  leaseFields,
  Registration,
  registrationOf,
  workerJson,
} from "./registration.ts";
import { ackFields, reportFields } from "./report-body.ts";
import { functionThing, isServing, rightsOf, type Serving, servedThings } from "./rights.ts";
import type { ExchangeAnswer, ExchangeResult, Workers } from "./service.ts";
import { StreamMessage } from "./stream/messages.ts";
import { mendErrors } from "./texts.ts";
import { fromWorkerMessage, refusalOf, toEngineMessage, toJobMessage } from "./wire.ts";

const takesReports = { bytesMax: reportBytesMax, mend: mendErrors };

/** Workers of several generations send fields that this server does not read. */
const lenient = { additionalProperties: true };

const Status = Type.Object({ status: shape.text("`ok`.") });
const toldFields = {
  definition_conflicts: Type.Optional(
    Type.Array(Type.String(), {
      description: "Functions of which another connected worker serves another definition, at most 100.",
    }),
  ),
  open_waits: maybe.flag("Reports may say all that a handler waits for, as `yields`."),
};
const toldOf = (conflicts: readonly string[], openWaits: boolean) => ({
  ...(conflicts.length > 0 && { definition_conflicts: [...conflicts] }),
  ...(openWaits && { open_waits: true }),
});
const Registered = Type.Object({
  status: shape.text("`registered`."),
  clock_off_ms: maybe.count(
    "By how much the worker's clock is ahead of the server's, when that is more than a second.",
  ),
  lease_ms: maybe.count("How long leases of the worker last, when it asked for a time."),
  unknown_functions: Type.Optional(
    Type.Array(Type.String(), {
      description:
        "Ids that no function of the environment has: register them first. Absent when there are none.",
    }),
  ),
  server_version: maybe.text("Version of the server, when the worker said that of its SDK."),
  ...toldFields,
});
const HeartbeatAnswer = Type.Object({ ...Status.properties, ...toldFields, ...cancelledField });
const workerId = Type.String({ minLength: 1 });

const Heartbeat = Type.Object(
  {
    workerId,
    active_jobs: Type.Optional(Type.Integer({ minimum: 0 })),
    jobs: Type.Optional(
      Type.Union(
        [Type.Array(Type.Object({ job_id: Type.String() }, lenient), { maxItems: 1000 }), Type.Null()],
        { description: "Jobs whose leases are renewed, at most 1,000." },
      ),
    ),
    ...leaseFields,
  },
  lenient,
);

const Assignment = Type.Object(
  {
    job_id: Type.String(),
    run_id: Type.String(),
    function_id: Type.String(),
    attempt: Type.Integer(),
    max_attempts: Type.Integer(),
    step_sequence_base: Type.Integer(),
    execution_seq: Type.Integer(),
    lease_token: Type.String(),
    lease_expires_at: Type.String({ format: "date-time" }),
    event: described(
      Type.Object({}, lenient),
      "The event that the run began with, as `GET /api/v1/events/{id}` shows it.",
    ),
    completed_steps: Type.Array(Type.Object({}, lenient)),
  },
  lenient,
);

/**
 * The service checks each report alone: an exchange with one malformed report must still store the others.
 */
const reported = checkedPerItem(reportFields);
const ReportInput = Type.Object({ workerId, jobId: Type.String(), ...reported }, lenient);
const AckInput = Type.Object({ workerId, jobId: Type.String(), ...ackFields, ...leaseFields }, lenient);

const Exchange = Type.Object(
  {
    workerId,
    reports: Type.Optional(
      Type.Array(Type.Object({ job_id: Type.String(), ...reported }, lenient), {
        description: "Reports of jobs, at most 200; each is answered by itself.",
      }),
    ),
    acks: Type.Optional(
      Type.Array(Type.Object({ job_id: Type.String(), ...checkedPerItem(ackFields) }, lenient), {
        description: "Jobs that have reached the worker.",
      }),
    ),
    available: Type.Optional(Type.Integer({ minimum: 0 })),
    hold_ms: Type.Optional(
      Type.Integer({
        minimum: 0,
        description: "Milliseconds that the answer may be held while there are no jobs.",
      }),
    ),
    ...leaseFields,
    ...heldField,
  },
  lenient,
);

const Results = Type.Array(
  Type.Object({
    job_id: Type.String(),
    status: Type.Union([Type.Literal("ok"), Type.Integer()], {
      description: "`ok`, or the HTTP status that the single route would have answered.",
    }),
    error: maybe.text("A word that clients compare; absent when it is stored."),
    message: maybe.text("For people; absent when it is stored."),
  }),
);

/** `{"jobs":[…]}` from the JSON text of each job; 204 without jobs. */
const encodeJobs = (jobs: readonly AssignedJob[]) =>
  jobs.length === 0
    ? { status: 204 }
    : { status: 200, body: `{"jobs":[${jobs.map(assignmentJson).join(",")}]}`, headers: jsonType };

/**
 * What deny policies are asked about: the worker, and the functions and secrets it serves once they are
 * known.
 */
const about = (input: { workerId: string } | Serving): (string | Thing)[] => [
  input.workerId,
  ...(isServing(input) ? servedThings(input) : []),
];
const alsoAsks = ["secrets:read"];

const jsonType = { "content-type": "application/json" };

const resultJson = ({ jobId, fault }: ExchangeResult) => ({
  job_id: jobId,
  ...(fault ? refusalOf(fault) : { status: "ok" }),
});

export const workersOperations = (workers: Workers) => [
  ...presenceOperations(workers),
  ...jobOperations(workers),
];

/** How a worker makes itself known, and stays known. */
const presenceOperations = (workers: Workers) => [
  duplex({
    name: "workers.connect",
    action: "functions:invoke",
    takesReports,
    summary: "A pull worker's stream: register first, then jobs and reports in both directions.",
    input: StreamMessage,
    about: (message: StreamMessage | Serving) =>
      isServing(message) ? servedThings(message) : (message.register?.function_ids ?? []),
    alsoAsks,
    rpc: rpcDuplex(
      WorkerService.method.connect,
      (message) => fromWorkerMessage(message) as StreamMessage,
      toEngineMessage,
    ),
    handle(messages, call, permit) {
      // Who listens is asked about as the caller is now, however long the stream lasts.
      call.onRenewed(() => {});
      const rights = rightsOf(call, permit);
      return workers.connect(call.environmentId, messages, call.signal, { written: toJobMessage, rights });
    },
  }),
  unary({
    name: "workers.register",
    action: "functions:invoke",
    summary: "Registers a pull worker, or registers it anew.",
    input: Registration,
    about: ({ workerId: id, function_ids }: Static<typeof Registration>) => [
      id,
      ...function_ids.map(functionThing),
    ],
    output: Registered,
    rest: ["POST /api/v1/workers/{workerId}/register", "PUT /api/v1/workers/{workerId}/register"],
    async handle(input, call) {
      const terms = workers.leaseTerms(input);
      const sent = registrationOf(input.workerId, input);
      const { clockOffMs, conflicts, unknown } = await workers.register(call.environmentId, sent, terms);
      return {
        status: "registered",
        ...(input.lease_ms !== undefined && { lease_ms: terms.leaseMs }),
        ...(clockOffMs !== null && { clock_off_ms: clockOffMs }),
        ...(unknown.length > 0 && { unknown_functions: unknown }),
        ...(input.version?.sdk && { server_version: version }),
        ...toldOf(conflicts, await workers.takesWaits()),
      };
    },
  }),
  unary({
    name: "workers.leave",
    action: "functions:invoke",
    summary:
      "A worker's goodbye: it is listed nowhere any more. Of another process of its name it changes nothing.",
    input: Type.Object({ workerId, ...leaseFields }),
    about,
    output: Status,
    rest: "DELETE /api/v1/workers/{workerId}",
    async handle(input, call) {
      await workers.leave(call.environmentId, input.workerId, workers.leaseTerms(input));
      return { status: "ok" };
    },
  }),
  unary({
    name: "workers.heartbeat",
    action: "functions:invoke",
    summary: "A worker's heartbeat; renews the leases of the jobs it lists and of no others.",
    input: Heartbeat,
    output: HeartbeatAnswer,
    rest: ["POST /api/v1/workers/{workerId}/heartbeat", "PUT /api/v1/workers/{workerId}/heartbeat"],
    async handle(input, call) {
      const { conflicts, cancelledJobs } = await workers.heartbeat(call.environmentId, input.workerId, {
        jobIds: (input.jobs ?? []).map((job) => job.job_id),
        ...(input.active_jobs !== undefined && { activeJobs: input.active_jobs }),
        terms: workers.leaseTerms(input),
      });
      return {
        ...{ status: "ok", ...toldOf(conflicts, await workers.takesWaits()) },
        ...(cancelledJobs.length > 0 && { cancelled_jobs: cancelledJobs }),
      };
    },
  }),
  unary({
    name: "workers.list",
    action: "functions:read",
    alsoAsks: actionsThatShow("function"),
    summary: "Workers of the environment with a recent heartbeat.",
    reads: true,
    input: Type.Object({}),
    output: Type.Object({
      workers: Type.Array(Type.Object({}, lenient), { description: "Workers with a recent heartbeat." }),
      count: shape.count("How many workers are listed."),
    }),
    rest: "GET /api/v1/workers",
    lists: listedById("workers"),
    async handle(_input, call) {
      const list = await workers.list(call.environmentId);
      const shown = await shownFunctions(call);
      const items = list.map(async (worker) =>
        workerJson(
          { ...worker, functionIds: await shown(worker.functionIds) },
          await shown(worker.conflicts),
        ),
      );
      return { workers: await Promise.all(items), count: list.length };
    },
  }),
];

const fenceSample = { execution_seq: 1, lease_token: "lease-token-of-an-example" };

/** How jobs reach a worker over REST, and what becomes of them. */
const jobOperations = (workers: Workers) => [
  unary({
    name: "workers.poll",
    action: "functions:invoke",
    summary: "Jobs for a worker, at most `available`; held open while there are none, then 204.",
    held: true,
    about,
    alsoAsks,
    input: Type.Object({ workerId, available: Type.Optional(Type.Integer({ minimum: 0 })) }),
    output: Type.Object({
      jobs: Type.Array(Assignment, { description: "Jobs that the worker has from now on." }),
    }),
    rest: { route: "GET /api/v1/workers/{workerId}/jobs", also: [204], encode: encodeJobs },
    handle: (input, call, permit) =>
      workers.poll(call.environmentId, input.workerId, input.available, call.signal, rightsOf(call, permit)),
  }),
  unary({
    name: "workers.ack",
    action: "functions:invoke",
    summary: "Confirms that an assignment has reached its worker.",
    input: AckInput,
    output: Status,
    rest: "PUT /api/v1/workers/{workerId}/jobs/{jobId}/ack",
    async handle(input, call) {
      await workers.ack(call.environmentId, input.workerId, { ...input, job_id: input.jobId });
      return { status: "ok" };
    },
  }),
  unary({
    name: "workers.report",
    action: "functions:invoke",
    summary: "Reports a job as completed, failed, yielded, or in progress.",
    takesReports,
    sample: { ...fenceSample, status: "completed", output: { sent: true } },
    input: ReportInput,
    output: Status,
    rest: "PUT /api/v1/workers/{workerId}/jobs/{jobId}",
    special: {
      async onBodyTooLarge({ params: { workerId: id = "", jobId = "" }, headers, head }, call, fault) {
        const lease = leaseIn(await head(), headers);
        await workers.reportUnread(call.environmentId, { workerId: id, jobId, lease }, fault);
      },
    },
    async handle(input, call, permit) {
      const rights = rightsOf(call, permit);
      await workers.report(call.environmentId, input.workerId, input.jobId, input, rights);
      return { status: "ok" };
    },
  }),
  unary({
    name: "workers.exchange",
    action: "functions:invoke",
    summary: "Many reports and the next jobs in one round trip; jobs handed out here count as acked.",
    sample: {
      reports: [
        {
          job_id: "job_01kf3m8q4v7x2n9t5c6b1d0e8g_1",
          ...fenceSample,
          status: "completed",
          output: { sent: true },
        },
      ],
      available: 10,
      hold_ms: 20_000,
    },
    held: true,
    takesReports,
    about,
    alsoAsks,
    input: Exchange,
    output: Type.Object({
      results: described(Results, "One for each report, in the order of the request."),
      acked: described(Results, "One for each ack, in the order of the request."),
      jobs: Type.Array(Assignment, { description: "Jobs that the worker has from now on." }),
    }),
    rest: {
      route: "POST /api/v1/workers/{workerId}/exchange",
      encode: (output: ExchangeAnswer) => ({
        status: 200,
        body: `{"results":${JSON.stringify(output.results.map(resultJson))},"acked":${JSON.stringify(
          output.acked.map(resultJson),
        )},"jobs":[${output.jobs.map(assignmentJson).join(",")}]}`,
        headers: jsonType,
      }),
    },
    handle: (input, call, permit) =>
      workers.exchange(
        call.environmentId,
        input.workerId,
        {
          reports: input.reports ?? [],
          acks: input.acks ?? [],
          available: input.available ?? 0,
          ...(input.hold_ms !== undefined && { holdMs: input.hold_ms }),
          terms: workers.leaseTerms(input),
          held: input.held,
        },
        call.signal,
        rightsOf(call, permit),
      ),
  }),
];
