import type { Group } from "../group.ts";

/** The server and the cluster. */
export const serverGroups: readonly Group[] = [
  {
    name: "server",
    about: "The server itself.",
    plain: [
      { name: "info", operation: "server.capabilities", shows: { items: "" } },
      { name: "health", operation: "server.health", shows: { items: "" } },
      { name: "ready", operation: "server.ready", shows: { items: "" } },
      { name: "routes", operation: "server.routes", shows: { items: "routes" } },
      { name: "overview", operation: "overview.get", shows: { items: "" } },
      { name: "rates", operation: "overview.rates", shows: { items: "minutes" } },
      { name: "integrity", operation: "integrity.report", shows: { items: "checks" } },
      {
        name: "integrity-rows",
        operation: "integrity.rows",
        takes: ["check"],
        shows: { items: "rows" },
      },
      { name: "requests", operation: "debug.requests" },
    ],
  },
  {
    name: "cluster",
    about: "Nodes of the installation.",
    plain: [
      { name: "health", operation: "cluster.health", shows: { items: "" } },
      {
        name: "rotate-token",
        operation: "cluster.rotateToken",
        takes: ["kind"],
        shows: { items: "" },
        confirms: "Replace {kind} on every node?",
      },
    ],
  },
  {
    name: "retention",
    about: "How long events and runs are kept.",
    plain: [
      { name: "get", operation: "retention.get", shows: { items: "" } },
      { name: "set", operation: "retention.set", shows: { items: "" }, confirms: "Change what is kept?" },
    ],
  },
  {
    name: "quota",
    about: "What an environment may use, and what of it is used.",
    plain: [
      { name: "get", operation: "quotas.get", byName: "environments.list", shows: { items: "" } },
      { name: "set", operation: "quotas.set", byName: "environments.list", shows: { items: "" } },
    ],
  },
];
