import { SvcError } from "../../sdk/index.ts";
import { conditionIn, filterOf } from "../../sdk/wire/attribute-conditions.ts";
import { pauseWords, runWord } from "../../sdk/wire/pause-words.ts";
import { type Asking, ask, askAndShow, type PlainCommand } from "../command.ts";
import { instantOf } from "../fields.ts";
import type { Group } from "../group.ts";
import { usage } from "../io.ts";
import { operationNamed } from "../operations.ts";
import { repairBar } from "../progress.ts";
import type { Shown } from "../show.ts";

async function typesOf(asking: Asking): Promise<Map<string, string>> {
  try {
    const asked = ask<{ attributes: { name: string; type: string }[] }>(asking, "attributes.list");
    const { attributes } = await asked;
    return new Map(attributes.map(({ name, type }) => [name, type]));
  } catch (error) {
    if (error instanceof SvcError && error.status === 403) return new Map();
    throw error;
  }
}

/** Filters of runs by their attributes, each with the type that its name has. */
async function attributeFilters(asking: Asking, conditions: readonly string[]): Promise<object[]> {
  const parsed = conditions.map((condition) => {
    const found = conditionIn(condition);
    if (found) return found;
    throw usage(`--where: must be NAME=VALUE, or with >, >=, < or <=, such as orderId=L22, not ${condition}`);
  });
  const types = parsed.length > 0 ? await typesOf(asking) : new Map<string, string>();
  return parsed.map((condition) => {
    const type = types.get(condition.name);
    const { text } = condition;
    try {
      return filterOf(type === "time" ? { ...condition, text: instantOf(text) } : condition, type);
    } catch (error) {
      throw error instanceof TypeError ? usage(`--where: ${error.message}`) : error;
    }
  });
}

const runColumns = ["id", "functionId", "status", "attempt", "createdAt", "endedAt", "error.message"];
const shownRuns: Shown = {
  ...{ columns: runColumns, items: "runs" },
  row: (run) =>
    run.status === "RUN_STATUS_PAUSED" ? { ...run, status: runWord("paused", `${run.pauseReason}`) } : run,
};
const pauses: readonly string[] = Object.values(pauseWords);

function pausesOf(given: readonly string[]): readonly string[] {
  const unknown = given.find((word) => !pauses.includes(word));
  if (unknown !== undefined) throw usage(`--paused: must be one of ${pauses.join(", ")}, not ${unknown}`);
  return given;
}

export const stepColumns = [
  "sequence",
  "name",
  "stepType",
  "status",
  "attempt",
  "startedAt",
  "endedAt",
  "error.message",
  "stepId",
];
const repairColumns = ["id", "action", "status", "reason", "startedBy", "createdAt", "endedAt"];
const timelineColumns = ["timestamp", "eventType", "stepName", "summary"];

export const listRuns: PlainCommand = {
  name: "list",
  operation: "runs.list",
  flags: { functionId: "function", eventId: "event" },
  flagsToo: [
    [
      "--where <condition...>",
      "Only runs with these attributes: orderId=L22, 'total>=100' (or >, <, <=); read as its name's type, where you may list names.",
    ],
    ["--paused <reason...>", `Only paused runs, by their reason: ${pauses.join(", ")}.`],
  ],
  async does(asking, { attributes = [], ...input }, { where = [], paused = [] }) {
    const all = [...(attributes as object[]), ...(await attributeFilters(asking, where as string[]))];
    const statuses = [...((input.statuses ?? []) as string[]), ...pausesOf(paused as string[])];
    const filters = {
      ...(all.length > 0 && { attributes: all }),
      ...(statuses.length > 0 && { statuses }),
    };
    await askAndShow(asking, operationNamed("runs.list"), { ...input, ...filters }, shownRuns);
  },
};

export const cancelRun: PlainCommand = { name: "cancel", operation: "runs.cancel", takes: ["id"] };

export const resumeRun: PlainCommand = {
  name: "resume",
  operation: "runs.resume",
  takes: ["runId"],
  flagsToo: [["--preview", "Only say which steps would run again."]],
  does(asking, { skipSleep, stepId, ...input }, { preview }) {
    if (!preview) return askAndShow(asking, operationNamed("runs.resume"), { skipSleep, stepId, ...input });
    return askAndShow(asking, operationNamed("runs.previewResume"), input, {
      columns: ["name", "status", "runsAgain", "patchLost", "notUndone", "builtOnAgain", "id"],
      items: "steps",
    });
  },
};

export const timeline: PlainCommand = {
  name: "timeline",
  operation: "timetravel.timeline",
  takes: ["runId"],
  shows: { columns: timelineColumns, items: "events" },
};

/** Runs, and repairs of many of them. */
export const runGroups: readonly Group[] = [
  {
    name: "attribute",
    about: "Names that runs are found by.",
    plain: [
      {
        name: "list",
        operation: "attributes.list",
        shows: {
          columns: ["name", "type", "runs", "runs_capped", "first_seen_at", "deleted_at"],
          items: "attributes",
        },
      },
      {
        name: "delete",
        operation: "attributes.delete",
        takes: ["name"],
        shows: { items: "" },
        confirms: "Delete attribute {name} of every run?",
      },
    ],
  },
  {
    name: "run",
    about: "Runs: what happened to them, and how to move them.",
    byId: { command: "get", id: /^run_/ },
    plain: [
      listRuns,
      { name: "get", operation: "runs.get", takes: ["id"] },
      {
        name: "steps",
        operation: "runs.steps",
        takes: ["runId"],
        shows: { columns: stepColumns, items: "steps" },
      },
      cancelRun,
      {
        name: "cancel-subtree",
        operation: "runs.cancelSubtree",
        takes: ["runId"],
        confirms: "Cancel {runId} and every run that it led to?",
      },
      { name: "pause", operation: "runs.pause", takes: ["runId"] },
      resumeRun,
      { name: "move", operation: "runs.move", takes: ["runId"], flags: { deployment: "to" } },
      { name: "paused-state", operation: "runs.pausedState", takes: ["runId"], shows: { items: "" } },
      {
        name: "inject",
        operation: "runs.inject",
        takes: ["runId", "stepId"],
        flags: { newOutput: "output" },
        needs: ["newOutput"],
      },
      { name: "patch-step", operation: "steps.patch", takes: ["stepId"] },
      { name: "streams", operation: "streams.ofRun", takes: ["id"] },
      {
        name: "delete",
        operation: "runs.delete",
        takes: ["runId"],
        confirms: "Delete {runId} with all that is its? It is gone for good.",
      },
      {
        name: "delete-many",
        operation: "runs.deleteMany",
        flags: { functionId: "function" },
        shows: { items: "" },
        confirms: "Delete all these runs? They are gone for good.",
      },
      {
        name: "redact",
        operation: "runs.redact",
        takes: ["runId"],
        shows: { items: "" },
        confirms: "Redact {runId}? What it was given, made and wrote is gone for good.",
      },
      {
        name: "redact-step",
        operation: "steps.redact",
        takes: ["stepId"],
        shows: { items: "" },
        confirms: "Redact step {stepId}? What it was given and made is gone for good.",
      },
      {
        name: "logs",
        operation: "runs.logs",
        takes: ["runId"],
        shows: { columns: ["at", "attempt", "level", "step", "text"], items: "lines" },
      },
      { name: "outputs", operation: "runs.outputs", takes: ["runId"], shows: { items: "outputs" } },
      { name: "signal", operation: "runs.signal", takes: ["runId", "name"] },
      {
        name: "signals",
        operation: "runs.signals",
        takes: ["runId"],
        shows: { columns: ["number", "name", "state", "sentAt", "takenAt", "stepId"], items: "signals" },
      },
      timeline,
    ],
  },
  {
    name: "error",
    about: "Runs that failed alike, as one group.",
    plain: [
      {
        name: "list",
        operation: "errors.list",
        flags: { functionId: "function" },
        shows: { columns: ["id", "functionId", "code", "message", "count", "lastSeenAt"], items: "groups" },
      },
      { name: "get", operation: "errors.get", takes: ["id"], shows: { items: "" } },
    ],
  },
  {
    name: "repair",
    about: "One action on many runs, in the background.",
    plain: [
      { name: "list", operation: "repairs.list", shows: { columns: repairColumns } },
      { name: "get", operation: "repairs.get", takes: ["id"], shows: { items: "", bar: repairBar } },
      { name: "items", operation: "repairs.items", takes: ["id"] },
      { name: "preview", operation: "repairs.preview", shows: { items: "" } },
      {
        name: "start",
        operation: "repairs.start",
        shows: { items: "" },
        confirms: "Start this repair? It acts on many runs.",
      },
      { name: "pause", operation: "repairs.pause", takes: ["id"], shows: { items: "" } },
      { name: "continue", operation: "repairs.continue", takes: ["id"], shows: { items: "" } },
      { name: "stop", operation: "repairs.stop", takes: ["id"], shows: { items: "" } },
    ],
  },
  {
    name: "replay",
    about: "A function on events of the past, in the background: a repair.",
    plain: [
      { name: "preview", operation: "replays.preview", takes: ["functionId"], shows: { items: "" } },
      {
        name: "start",
        operation: "replays.start",
        takes: ["functionId"],
        shows: { items: "" },
        confirms: "Start {functionId} on events of the past?",
      },
    ],
  },
];
