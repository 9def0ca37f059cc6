import type { Law } from "./tidy-law.ts";
import { matches, type Rule, within } from "./tidy-rules.ts";

/** Where stands what a log line says was given up: its tenant sees it there. */
const listed: Readonly<Record<string, string>> = {
  "event.delayed_refused": "the dead letters of the outbox, kind delayed",
  "outbox.dead_lettered": "the dead letters of the outbox",
  "groups.given_up": "the dead letters of the outbox, kind group",
  "job.unsendable": "its run, which fails with the reason",
  "batch.dropped": "nowhere: its function was deleted or archived by the tenant",
  "debounce.dropped": "nowhere: its function was deleted or archived by the tenant",
  "worker.stream_refused": "the answer to the worker",
  "worker.report_refused": "the answer to the worker",
  "run.report_refused": "the answer to the worker",
};

const givenUp = /"([a-z_]+\.(?:\w+_)?(?:refused|given_up|dropped|discarded|unsendable|dead_lettered))"/g;

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
  rule: unlistedBreaches,
  bad: [
    ["src/domain/log/x/service.ts", '\nlog.warn("event.late_dropped", { id });', 2],
    ["src/domain/log/x/service.ts", 'log.warn(passing ? "x.again" : "x.y_refused", { id });', 1],
  ],
  good: [
    ["src/domain/log/x/service.ts", 'log.warn("event.delayed_refused", { id });'],
    ["src/domain/log/x/service.ts", 'frames.tell("x.refused");'],
  ],
};
