import { mcpTools } from "./tools.ts";

/** The words of a shell without their quotes. */
const unquoted = (text: string): string =>
  /^'.*'$/s.test(text) ? text.slice(1, -1).replaceAll("'\\''", "'") : text;

const call = (tool: string, given: Readonly<Record<string, unknown>> = {}): string =>
  Object.keys(given).length > 0 ? `${tool} ${JSON.stringify(given)}` : tool;

/** Tools in place of the commands that `svc why` names; what has no tool stays a command for the person. */
const toolOfCommand: readonly (readonly [command: RegExp, tool: (...found: readonly string[]) => string])[] =
  [
    [/^svc resume (\S+)$/, (run_id) => call("svc_resume_run", { run_id })],
    [
      /^svc resume (\S+) --from-step (.+)$/s,
      (run_id, step = "") => call("svc_resume_run", { run_id, from_step: unquoted(step) }),
    ],
    [/^svc resume (\S+) --skip-sleep$/, (run_id) => call("svc_resume_run", { run_id, skip_sleep: true })],
    [/^svc cancel (\S+)$/, (run_id) => call("svc_cancel_run", { run_id, confirm: true })],
    [/^svc run signal (\S+) (\S+)$/, (run_id, name) => call("svc_signal_run", { run_id, name })],
    [/^svc inspect (\S+)$/, (run_id) => call("svc_get_run", { run_id })],
    [/^svc run steps (\S+)/, (run_id) => call("svc_get_run_steps", { run_id })],
    [/^svc why (\S+)$/, (run_id) => call("svc_why", { run_id })],
    [/^svc function get (\S+)$/, (function_id) => call("svc_get_function", { function_id })],
    [/^svc worker list$/, () => "svc_list_workers"],
    [/^svc deployments$/, () => "svc_list_deployments"],
    [/^svc breaker list$/, () => "svc_circuit_breaker_list"],
  ];

export const asTool = (command: string): string => {
  for (const [pattern, tool] of toolOfCommand) {
    const found = pattern.exec(command);
    if (found) return tool(...found.slice(1));
  }
  return command;
};

const failed = "svc_why with the run_id of one: why it failed or does not move.";
const repair =
  "Once the cause is gone: svc_preview_resume for one run; svc_preview_repair for many, such as all of an error group.";

/** What a client calls after the answer of a tool. */
const after: Readonly<Record<string, string>> = {
  svc_server_info: "svc_overview: what is under way, and what failed.",
  svc_overview: "svc_error_groups: which failures look alike; svc_list_runs: single runs.",
  svc_list_environments: "Every tool takes `env`, a name or an id of these.",
  svc_error_groups:
    'svc_why with the sampleRunId of a group as run_id. All runs of a group: svc_list_runs with error_group, svc_preview_repair with the filter {"errorGroup": its id}.',
  svc_list_runs: failed,
  svc_get_run:
    "svc_get_run again while it runs; svc_why with the same run_id: why it failed or does not move.",
  svc_why: `svc_get_run_steps and svc_run_logs: what it did. ${repair}`,
  svc_get_run_steps: `svc_patch_step with step_id replaces what a step answered. ${repair}`,
  svc_run_logs: repair,
  svc_preview_resume:
    "svc_resume_run with the same run_id; svc_patch_step before it, where a step's output is wrong.",
  svc_patch_step: "svc_resume_run: the run goes on, and passes this step.",
  svc_inject_step: "svc_resume_run: the run goes on, and passes this step.",
  svc_run_signals: "svc_signal_run with run_id, name and data sends another one.",
  svc_signal_run:
    "svc_get_run with the same run_id: whether it goes on; svc_run_signals: what was sent to it.",
  svc_resume_run: "svc_get_run until its status is completed or failed; svc_why if it fails again.",
  svc_preview_repair:
    "Show the person how many runs these are; then svc_start_repair with the same action and filter, a reason and confirm.",
  svc_start_repair: "svc_get_repair with its id as repair_id, until its status is completed.",
  svc_get_repair:
    "svc_get_repair again while it is running; then svc_list_runs with status failed and `since`: what failed again.",
  svc_list_functions: "svc_list_runs with function_id; svc_get_function with function_id.",
  svc_list_events: "svc_list_runs with event_id or event_name: what they started.",
  svc_emit_event: "svc_list_runs with event_id: the runs that it started.",
  svc_search_docs: "svc_get_docs with a topic of these: the whole page.",
  svc_list_projections: "svc_projection_status with name.",
  svc_outbox_dlq_list:
    "svc_outbox_dlq_requeue with event_id tries one again; svc_outbox_dlq_discard gives it up.",
  svc_circuit_breaker_list: "svc_circuit_breaker_reset closes one.",
};

/** The same, where the list that was answered is empty; its field beside it. */
const afterNone: Readonly<Record<string, readonly [field: string, next: string]>> = {
  svc_error_groups: [
    "groups",
    'No failure is known here. svc_list_runs with statuses ["waiting_for_capacity", "waiting", "paused"]: runs that do not move; svc_list_environments: another environment for `env`.',
  ],
  svc_list_runs: [
    "runs",
    "No run fits. svc_list_events: whether the event came, and under which name; svc_list_functions; svc_list_environments: another environment for `env`.",
  ],
};

const writing = new Set(mcpTools.flatMap(({ name, writes }) => (writes ? [name] : [])));

const fieldOf = (answer: unknown, field: string): readonly unknown[] => {
  const value = (answer as Readonly<Record<string, unknown>> | undefined)?.[field];
  return Array.isArray(value) ? value : [];
};

/** One line after an answer: the tools of the next step, and which of them this connection may not call. */
export function nextLine(
  tool: string,
  answer: unknown,
  { allowsWrites, now }: { allowsWrites: boolean; now: Date },
): string | undefined {
  const [field, none] = afterNone[tool] ?? [];
  const isNone = field !== undefined && fieldOf(answer, field).length === 0;
  const next = isNone ? none : after[tool];
  if (next === undefined) return undefined;
  const said = [next, ...(tool === "svc_why" ? fieldOf(answer, "next") : [])].join(" ");
  const refused = allowsWrites
    ? []
    : [...new Set(said.match(/svc_\w+/g))].filter((name) => writing.has(name));
  const where =
    refused.length > 0
      ? ` This connection only reads; svc mcp --allow-writes, or /mcp?allow-writes=true, offers ${refused.join(", ")}.`
      : "";
  return `Next: ${next}${where} (It is ${now.toISOString()}.)`;
}
