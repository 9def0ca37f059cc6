import type { Group } from "../group.ts";

const alertColumns = ["id", "rule", "state", "count", "openedAt", "detail"];

/** Who is told when something goes wrong. */
export const alertGroups: readonly Group[] = [
  {
    name: "alert",
    about: "What alert rules found.",
    plain: [
      { name: "list", operation: "alerts.list", shows: { columns: alertColumns, items: "alerts" } },
      { name: "resolve", operation: "alerts.resolve", takes: ["id"], shows: { items: "" } },
    ],
    groups: [
      {
        name: "rule",
        about: "Rules that tell somebody when something goes wrong.",
        plain: [
          { name: "list", operation: "alerts.listRules" },
          { name: "get", operation: "alerts.getRule", takes: ["name"], shows: { items: "" } },
          {
            name: "put",
            operation: "alerts.putRule",
            takes: ["name"],
            shows: { items: "" },
            replaces: { found: "alerts.getRule", question: "Replace alert rule {name}?" },
          },
          { name: "silence", operation: "alerts.silenceRule", takes: ["name"], shows: { items: "" } },
          { name: "test", operation: "alerts.testRule", takes: ["name"], shows: { items: "results" } },
          {
            name: "delete",
            operation: "alerts.deleteRule",
            takes: ["name"],
            confirms: "Delete alert rule {name} with its alerts?",
          },
        ],
      },
    ],
  },
];
