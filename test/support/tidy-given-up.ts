import type { Law } from "./tidy-law.ts";
import { matches, type Rule, within } from "./tidy-rules.ts";
import { lineAt } from "./tidy-source.ts";

/** Where stands what a log line says was given up: its tenant sees it there. */
const listed: Readonly<Record<string, string>> = {
  "event.delayed_refused": "the dead letters of the outbox, kind delayed",
  "outbox.dead_lettered": "the dead letters of the outbox",
  "groups.given_up": "the dead letters of the outbox, kind group",
  "job.unsendable": "its run, which fails with the reason",
  "batch.dropped": "nowhere: its function was deleted or archived by the tenant",
  "debounce.dropped": "nowhere: its function was deleted or archived by the tenant",
  "groups.unreadable": "nowhere: its group was given another pattern; retention waits for what is held",
  "groups.lapsed": "nowhere: a subscription made the group, and left it for a day",
  "groups.member_lost": "the deliveries of the other members",
  "audit.row_lost": "nowhere but this line: the row that would say it is the one that is lost",
  "worker.jobs_lost": "their runs, which are queued again",
  "run.workers_lost": "its run, which fails with the reason",
  "webhooks.unrecorded": "the answer to the provider",
  "worker.message_ignored": "its run: the report came beside another one, or too late",
  "worker.stream_refused": "the answer to the worker",
  "worker.report_refused": "the answer to the worker",
  "run.report_refused": "the answer to the worker",
};

const words = [
  ...["refused", "given_up", "dropped", "discarded", "unsendable", "dead_lettered"],
  ...["lost", "lapsed", "unreadable", "unrecorded", "ignored", "skipped"],
].join("|");
const givenUp = new RegExp(`"([a-z_]+\\.(?:\\w+_)?(?:${words}))"`, "g");

const ended = "the end of its run, with the reason";
const away = "nowhere: its function was deleted or archived by the tenant";
const old = "nowhere: past the time that the tenant keeps it, and behind every reader (`floorGuards`)";
/** Tables of accepted work, and where stands what became of it, by the files that may delete their rows. */
const deleted: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  delayed_events: {
    "engine/emit/rows": "the event, the dead letters of the outbox, or the caller's own",
  },
  outbox: {
    "record/outbox/rows": "sent, or a dead letter: requeued, discarded, or 90 days old",
    "record/erasure/rows": "the audit: somebody redacted the event of the message",
  },
  group_deliveries: {
    "realtime/groups/ack": "acknowledged by a member, or written to it",
    "realtime/groups/claim": "the dead letters of the outbox, kind group",
    "realtime/groups/rows": "nowhere: its group was deleted, or left by all for a day",
  },
  webhook_dead_letters: {
    "integrations/deliveries/letter-rows": "delivered, discarded, or 30 days old",
    "integrations/deliveries/rows": "nowhere: its endpoint was deleted",
  },
  webhook_deliveries: { "integrations/webhooks/rows": old },
  failed_runs: {
    "engine/failures/rows":
      "the event, or the dead letters of the outbox; nowhere for a run that such an event began",
  },
  alert_deliveries: {
    "integrations/alerts/alert-rows": "nowhere: its alert ended 30 days ago",
    "integrations/alerts/rule-rows": "nowhere: its rule was deleted",
  },
  debounces: {
    "engine/debounce/fire": `its run; ${away}`,
    "engine/debounce/rows": `the caller's own; ${away}`,
  },
  batches: { "engine/batches/close": `its run; ${away}`, "engine/batches/rows": away },
  batch_events: {
    "engine/batches/close": `its run; ${away}`,
    "engine/batches/rows": away,
    "record/retention/rows": old,
  },
  schedules: { "engine/schedules/rows": "nowhere: its function no longer declares it" },
  run_deadlines: { "engine/runs/deadlines": ended },
  invocations: {
    "engine/runs/children/children-rows": "the child, or the refusal that its parent gets",
    "engine/runs/children/invokes": "a person's resume: the parent asks again",
    "engine/runs/invariants": "the check executions.without_run, as healed",
    "engine/runs/undo/end-runs": ended,
    "engine/runs/waits/drop-waits": "a person's cancel, or a resume: the parent asks again",
  },
  child_ends: { "engine/runs/children/children-rows": "the step of the parent" },
  executions: {
    "engine/runs/execution/commit-reports": ended,
    "engine/runs/invariants": "the check executions.without_run, as healed",
    "engine/runs/undo/end-runs": ended,
    "engine/steering/rows": "the answer to who resumes",
  },
  projection_pending: {
    "state/projections/rows": "nowhere: its projection was deleted, or is rebuilt",
    "state/projections/state-rows": "its state, or delivered again from the cursor",
  },
  repair_items: { "engine/repairs/rows": "what became of the run; 30 days after the repair" },
  events: { "record/retention/rows": old },
  topic_messages: { "log/topics/rows": old },
  runs: { "record/retention/rows": old },
};

const deletion = new RegExp(`DELETE FROM (${Object.keys(deleted).join("|")})\\b`, "g");

/** Whoever deletes accepted work says where its tenant sees what became of it. */
const deletionBreaches: Rule = (sources) =>
  sources.filter(within("src/domain/")).flatMap((one) => {
    const place = one.path.replace(/^src\/domain\//, "").replace(/\.ts$/, "");
    return [...one.text.matchAll(deletion)].flatMap(({ 1: table, index }) =>
      place in deleted[table!]!
        ? []
        : `${one.path}:${lineAt(one.text, index)}: ${table}: where does its tenant see what became of the rows? Name it in tidy-given-up.ts`,
    );
  });

/** Nothing disappears with a line of a log: work that is given up goes into a list that its tenant sees. */
const unlistedBreaches: Rule = (sources) =>
  matches(
    sources.filter(within("src/domain/")).map((one) => ({
      ...one,
      // Only what is logged: metrics and frames have such names, too.
      text: one.text.replaceAll(/"[a-z_]+\.[a-z_]+"/g, (name, at: number) =>
        /log\.(?:info|warn|error)\([^;]{0,120}$/.test(one.text.slice(0, at)) && !(name.slice(1, -1) in listed)
          ? name
          : `"${" ".repeat(name.length - 2)}"`,
      ),
    })),
    givenUp,
    (found) =>
      `${found}: what is given up stands in a list that its tenant sees; name it in tidy-given-up.ts`,
    (text) => text,
  );

export const givenUpLaw: Omit<Law, "over"> = {
  name: "what is given up is listed",
  rule: (sources) => [...unlistedBreaches(sources), ...deletionBreaches(sources)],
  bad: [
    ["src/domain/log/x/service.ts", '\nlog.warn("event.late_dropped", { id });', 2],
    ["src/domain/log/x/service.ts", 'log.warn(passing ? "x.again" : "x.y_refused", { id });', 1],
    ["src/domain/log/x/service.ts", 'log.warn("x.rows_skipped", { id });', 1],
    ["src/domain/log/x/rows.ts", "\nrun(sql`DELETE FROM group_deliveries WHERE id = 1`);", 2],
  ],
  good: [
    ["src/domain/log/x/service.ts", 'log.warn("event.delayed_refused", { id });'],
    ["src/domain/log/x/service.ts", 'frames.tell("x.refused");'],
    ["src/domain/realtime/groups/claim.ts", "run(sql`DELETE FROM group_deliveries WHERE id = 1`);"],
    ["src/domain/log/x/rows.ts", "run(sql`DELETE FROM batches_of_mine`);"],
  ],
};
