import type { Yield } from "../../src/sdk/wire/wire.ts";
import { until } from "./until.ts";

/** Just enough of the wire, in memory, to test the SDK against the worst that a server may do. Tests only. */
export interface FakeServer {
  url: string;
  requests: { method: string; path: string; body: unknown; headers: Headers }[];
  runs: Map<string, FakeRun>;
  functions: Map<string, Record<string, unknown>>;
  /** Answers the next requests whose path contains `part` in another way; `drop` breaks the connection after handling it. */
  fail(part: string, answer: Failure, times?: number): void;
  /** The server forgets its workers, as after a long silence. */
  forgetWorkers(): void;
  /** Gives the run to someone else: what its present holder reports is stale. */
  supersede(runId: string): void;
  setExchange(there: boolean): void;
  reports(): Record<string, unknown>[];
  stop(): Promise<void>;
}

export interface Failure {
  status: number;
  body?: unknown;
  headers?: Record<string, string>;
  /** The request is handled all the same; only its answer is lost. */
  handled?: boolean;
}

export interface FakeRun {
  id: string;
  functionId: string;
  event: Record<string, unknown>;
  status: "queued" | "leased" | "sleeping" | "waiting" | "completed" | "failed";
  attempt: number;
  seq: number;
  acked: boolean;
  output?: unknown;
  error?: { message: string; code?: string; retryable: boolean };
  steps: Map<string, Record<string, unknown>>;
  /** Whose step its end completes. */
  parent?: { run: FakeRun; stepId: string };
}

interface Report {
  job_id: string;
  run_id: string;
  status: string;
  execution_seq: number;
  lease_token: string;
  output?: unknown;
  error?: FakeRun["error"];
  steps?: { id: string; name: string; status: string; output?: unknown }[];
  step_offset?: number;
  yield?: Yield;
}

const holdMs = 300;
const json = (status: number, body: unknown, headers?: Record<string, string>) =>
  Response.json(body, { status, ...(headers && { headers }) });

export interface FakeServerOptions {
  leaseMs?: number;
  attemptsMax?: number;
  /** Workers may ask for leases: the answer says how long they last. */
  tellsLease?: boolean;
}

export function startFakeServer(options: FakeServerOptions = {}): FakeServer {
  const { leaseMs = 90_000, attemptsMax = 3, tellsLease = false } = options;
  const runs = new Map<string, FakeRun>();
  const functions = new Map<string, Record<string, unknown>>();
  const workers = new Set<string>();
  const requests: FakeServer["requests"] = [];
  const failures: { part: string; answer: Failure; times: number }[] = [];
  const reports: Report[] = [];
  let hasExchange = true;
  let count = 0;

  function emit(message: Record<string, unknown>) {
    const eventId = `evt_${++count}`;
    const event = {
      id: eventId,
      name: message.event,
      data: message.data ?? message.dataValue ?? null,
      timestamp: "2026-01-02T03:04:05.678Z",
      version: 1,
      source: "api",
      metadata: null,
    };
    const runIds: string[] = [];
    for (const run of [...runs.values()].filter((one) => one.status === "waiting")) {
      for (const step of run.steps.values())
        if (step.awaits === message.event) finish(run, step, { status: "completed", output: event });
    }
    for (const [functionId, definition] of functions) {
      const triggers = (definition.triggers ?? []) as { event?: string }[];
      if (triggers.some((trigger) => trigger.event === message.event))
        runIds.push(startRun(functionId, event).id);
    }
    return { eventId, runIds, sequence: String(count) };
  }

  function startRun(functionId: string, event: Record<string, unknown>, parent?: FakeRun["parent"]): FakeRun {
    const run: FakeRun = {
      id: `run_${++count}`,
      functionId,
      event,
      status: "queued",
      attempt: 1,
      seq: 0,
      acked: false,
      steps: new Map(),
      ...(parent && { parent }),
    };
    runs.set(run.id, run);
    return run;
  }

  /** Ends a step that its run waits for. */
  function finish(run: FakeRun, step: Record<string, unknown>, end: Record<string, unknown>): void {
    delete step.awaits;
    Object.assign(step, end);
    run.status = "queued";
  }

  function takeYield(run: FakeRun, reason: Yield): void {
    const step: Record<string, unknown> = { id: reason.step_id, name: reason.step_name, status: "sleeping" };
    run.steps.set(reason.step_id, step);
    run.status = "waiting";
    if (reason.type === "sleep") {
      step.until = reason.until;
      run.status = "sleeping";
    } else if (reason.type === "wait_for_event") step.awaits = reason.event_filter.event;
    else if (
      reason.type === "wait_for_events" ||
      reason.type === "wait_for_signal" ||
      reason.type === "retry_step"
    )
      throw new Error("this server knows no such yield");
    else {
      const event = {
        id: `evt_${++count}`,
        name: reason.function_id,
        data: reason.input ?? null,
        version: 1,
      };
      const isAsync = reason.type === "invoke_function_async";
      const child = startRun(
        reason.function_id,
        { ...event, timestamp: "2026-01-02T03:04:05.678Z", metadata: null },
        isAsync ? undefined : { run, stepId: reason.step_id },
      );
      if (isAsync) finish(run, step, { status: "completed", output: { run_id: child.id } });
    }
  }

  /** What the end of a child means for the step that invoked it. */
  function tellParent(child: FakeRun): void {
    const { parent, error } = child;
    const step = parent?.run.steps.get(parent.stepId);
    if (!parent || !step) return;
    const failure = { function_id: child.functionId, child_run_id: child.id, message: error?.message };
    finish(
      parent.run,
      step,
      error ? { status: "failed", invoked: failure } : { status: "completed", output: child.output },
    );
  }

  function claim(available: number, acked: boolean) {
    for (const run of runs.values()) {
      const due = [...run.steps.values()].every(
        (step) => Date.parse(String(step.until ?? 0)) <= Date.now() || step.until === undefined,
      );
      if (run.status === "sleeping" && due) {
        for (const step of run.steps.values()) step.status = "completed";
        run.status = "queued";
      }
    }
    const due = [...runs.values()].filter((run) => run.status === "queued").slice(0, available);
    return due.map((run) => {
      run.status = "leased";
      run.acked = acked;
      run.seq++;
      return {
        job_id: `job_${run.id}_${run.seq}`,
        run_id: run.id,
        function_id: run.functionId,
        attempt: run.attempt,
        max_attempts: attemptsMax,
        event: run.event,
        completed_steps: [...run.steps.values()]
          .filter((step) => step.status === "completed" || step.invoked)
          .map((step) => ({
            step_id: step.id,
            name: step.name,
            output: step.output ?? null,
            ...(step.invoked ? { status: "failed", error: step.invoked } : {}),
          })),
        step_sequence_base: run.steps.size,
        execution_seq: run.seq,
        lease_token: `lease_${run.seq}`,
        lease_expires_at: new Date(Date.now() + leaseMs).toISOString(),
      };
    });
  }

  async function held(available: number, acked: boolean) {
    const deadline = Date.now() + holdMs;
    const jobs = await until(
      () => {
        const found = claim(available, acked);
        return found.length > 0 || Date.now() > deadline ? { found } : undefined;
      },
      { about: "a job", everyMs: 2 },
    );
    return jobs.found;
  }

  function settle(report: Report): { status: number; error?: string; message?: string } {
    reports.push(report);
    const run = runs.get(report.run_id);
    if (!run) return { status: 404, error: "not_found", message: "no such run" };
    if (run.seq !== report.execution_seq || report.lease_token !== `lease_${run.seq}`)
      return { status: 409, error: "STALE_EXECUTION", message: "stale" };
    if (run.status !== "leased") return { status: 409, error: "RUN_NOT_RUNNING", message: run.status };
    if (report.steps && report.steps.length > 500)
      return { status: 400, error: "too many", message: "too many steps" };
    for (const step of report.steps ?? []) run.steps.set(step.id, step as unknown as Record<string, unknown>);
    if (report.status === "completed") {
      run.status = "completed";
      run.output = report.output;
      tellParent(run);
    } else if (report.status === "yielded" && report.yield) takeYield(run, report.yield);
    else if (report.status === "failed" && report.error) {
      run.error = report.error;
      const again = report.error.retryable && run.attempt < attemptsMax;
      run.status = again ? "queued" : "failed";
      if (again) run.attempt++;
      else tellParent(run);
    }
    return { status: 200 };
  }

  const rpcRun = (run: FakeRun) => ({
    id: run.id,
    functionId: run.functionId,
    status: `RUN_STATUS_${(run.status === "leased" ? "running" : run.status === "queued" ? "waiting_for_capacity" : run.status).toUpperCase()}`,
    outputValue: run.output,
    error: run.error,
    attempt: run.attempt,
  });

  async function handle(
    method: string,
    path: string,
    url: URL,
    body: Record<string, unknown>,
  ): Promise<Response> {
    switch (path) {
      case "/health":
        return json(200, { status: "healthy" });
      case "/api/v1/environments":
        return json(200, { environments: [{ id: "env_staging", name: "staging" }] });
      case "/svc.v1.SvcService/RegisterFunction": {
        functions.set(String(body.id), body);
        // As servers that hand out no runs to be undone: they ignore what they do not know.
        const { compensateOn: _, ...known } = body;
        return json(200, {
          function: { ...known, status: "FUNCTION_STATUS_ACTIVE", version: 1 },
          created: true,
        });
      }
      case "/svc.v1.SvcService/Emit":
        return json(200, emit(body));
      case "/svc.v1.PubSubService/Publish":
        return json(200, { eventId: `evt_${++count}`, sequence: String(count) });
      case "/svc.v1.ProjectionService/CreateSQLProjection":
        return json(200, { name: body.name, status: "running" });
      case "/svc.v1.SvcService/TriggerBatch":
        return json(200, { results: (body.events as Record<string, unknown>[]).map(emit) });
      case "/svc.v1.SvcService/GetRun": {
        const run = runs.get(String(body.id));
        return run
          ? json(200, rpcRun(run))
          : json(404, { code: "not_found", message: `run ${body.id} not found` });
      }
    }
    const [, worker = "", action, jobId, ack] =
      /^\/api\/v1\/workers\/([^/]+)\/(\w+)(?:\/([^/]+))?(?:\/(ack))?$/.exec(path) ?? [];
    if (action === "register") {
      workers.add(worker);
      return json(200, { status: "ok", ...(tellsLease && { lease_ms: leaseMs }) });
    }
    if (!workers.has(worker)) return json(404, { error: `worker ${worker} not found`, code: "not_found" });
    if (action === "heartbeat") return json(200, { status: "ok" });
    if (action === "exchange" && hasExchange) {
      const sent = body.reports as Report[];
      const results = sent.map((report) => {
        const { status, ...rest } = settle(report);
        return { job_id: report.job_id, ...rest, status: status === 200 ? "ok" : status };
      });
      const available = Number(body.available ?? 0);
      const jobs = sent.length > 0 ? claim(available, true) : await held(available, true);
      return json(200, { results, acked: [], jobs });
    }
    if (action === "jobs" && method === "GET") {
      const jobs = await held(Number(url.searchParams.get("available")), false);
      return jobs.length > 0 ? json(200, { jobs }) : new Response(null, { status: 204 });
    }
    if (action === "jobs" && ack) {
      const run = runs.get(String(body.run_id));
      if (run) run.acked = true;
      return json(200, { status: "ok" });
    }
    if (action === "jobs" && jobId) {
      const { status, ...rest } = settle(body as unknown as Report);
      return json(status, status === 200 ? { status: "ok" } : rest);
    }
    return json(404, { error: "no such route", code: "not_found" });
  }

  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 30,
    async fetch(request) {
      const url = new URL(request.url);
      const text = await request.text();
      const body = text === "" ? {} : JSON.parse(text);
      requests.push({ method: request.method, path: url.pathname, body, headers: request.headers });
      const at = failures.findIndex(({ part }) => url.pathname.includes(part));
      const failure = failures[at];
      if (!failure) return handle(request.method, url.pathname, url, body);
      if (--failure.times <= 0) failures.splice(at, 1);
      if (failure.answer.handled) await handle(request.method, url.pathname, url, body);
      return json(failure.answer.status, failure.answer.body ?? { error: "told to" }, failure.answer.headers);
    },
  });

  return {
    url: `http://127.0.0.1:${server.port}`,
    requests,
    runs,
    functions,
    fail: (part, answer, times = 1) => failures.push({ part, answer, times }),
    forgetWorkers: () => workers.clear(),
    supersede(runId) {
      runs.get(runId)!.seq++;
    },
    setExchange(there) {
      hasExchange = there;
    },
    reports: () => reports as unknown as Record<string, unknown>[],
    stop: () => server.stop(true),
  };
}
