import type { ComponentType } from "preact";
import { isAtHome, may } from "./lib/session.ts";
import { AccessPage } from "./pages/access/access.tsx";
import { AuditPage } from "./pages/access/audit.tsx";
import { PoliciesPage } from "./pages/access/policies.tsx";
import { PolicyPage } from "./pages/access/policy.tsx";
import { AlertsPage } from "./pages/alerts.tsx";
import { CapacityPage } from "./pages/capacity.tsx";
import { ClusterPage } from "./pages/cluster/cluster.tsx";
import { ConfigPage } from "./pages/config/config.tsx";
import { ConfigsPage } from "./pages/config/configs.tsx";
import { DeadLettersPage } from "./pages/dead-letters/dead-letters.tsx";
import { EventPage } from "./pages/events/event.tsx";
import { EventsPage } from "./pages/events/events.tsx";
import { FunctionPage } from "./pages/functions/function.tsx";
import { FunctionsPage } from "./pages/functions/functions.tsx";
import { GroupPage } from "./pages/groups/group.tsx";
import { GroupsPage } from "./pages/groups/groups.tsx";
import { IntegrityPage } from "./pages/integrity.tsx";
import { BucketPage } from "./pages/kv/bucket.tsx";
import { BucketsPage } from "./pages/kv/buckets.tsx";
import { MapPage } from "./pages/map/map.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { TenantsPage } from "./pages/platform/tenants.tsx";
import { ProjectionPage } from "./pages/projections/projection.tsx";
import { ProjectionsPage } from "./pages/projections/projections.tsx";
import { QuotasPage } from "./pages/quotas.tsx";
import { RepairPage } from "./pages/repairs/repair.tsx";
import { RepairsPage } from "./pages/repairs/repairs.tsx";
import { RunPage } from "./pages/run/run.tsx";
import { RunsPage } from "./pages/runs/runs.tsx";
import { SchedulesPage } from "./pages/schedules.tsx";
import { SchemaPage } from "./pages/schemas/schema.tsx";
import { SchemasPage } from "./pages/schemas/schemas.tsx";
import { SecretPage } from "./pages/secrets/secret.tsx";
import { SecretsPage } from "./pages/secrets/secrets.tsx";
import { SqlPage } from "./pages/sql/console.tsx";
import { StreamPage } from "./pages/streams/stream.tsx";
import { StreamsPage } from "./pages/streams/streams.tsx";
import { ToolPage, ToolsPage } from "./pages/tools/tools.tsx";
import { TopicPage } from "./pages/topics/topic.tsx";
import { TopicsPage } from "./pages/topics/topics.tsx";
import { UsagePage } from "./pages/usage.tsx";
import { EndpointPage } from "./pages/webhooks/endpoint.tsx";
import { EndpointsPage } from "./pages/webhooks/endpoints.tsx";
import { SourcePage } from "./pages/webhooks/source.tsx";
import { SourcesPage } from "./pages/webhooks/sources.tsx";
import { WorkersPage } from "./pages/workers.tsx";
import type { IconName } from "./ui/icons.tsx";

/** The parts of the navigation, in their order. */
export const pageGroups = ["Work", "Data", "Connections", "Operation", "Platform"] as const;
export type PageGroup = (typeof pageGroups)[number];

/** One page of the dashboard. */
export interface PageEntry {
  /** Its place in the address, behind the org and the environment. */
  path: string;
  name: string;
  icon: IconName;
  /** Pressed behind `g`. */
  key: string;
  /** The action without which it is not offered; empty for everyone. */
  needs: string;
  /** The part of the navigation that it stands in. */
  group: PageGroup;
  /** Whom it is for: those who look at an org's environment when left out. */
  area?: "platform";
  shows: ComponentType;
  /** What `path/{id}` shows, and how ids of that kind begin. */
  one?: { shows: ComponentType; prefix?: string };
}

/** What a user of the platform sees at home, where no environment is looked at. */
const platformPages = [
  {
    ...{ path: "tenants", name: "Tenants", icon: "platform", key: "t", needs: "platform:tenants:read" },
    shows: TenantsPage,
  },
  {
    ...{ path: "capacity", name: "Capacity", icon: "batches", key: "c", needs: "platform:tenants:read" },
    shows: CapacityPage,
  },
  {
    ...{ path: "cluster", name: "Cluster", icon: "cluster", key: "n", needs: "platform:tenants:read" },
    shows: ClusterPage,
  },
  {
    ...{ path: "access", name: "Access", icon: "access", key: "u", needs: "" },
    shows: AccessPage,
  },
  {
    ...{ path: "policies", name: "Policies", icon: "filter", key: "y", needs: "platform:policies:read" },
    ...{ shows: PoliciesPage, one: { shows: PolicyPage, prefix: "pol_" } },
  },
  {
    ...{ path: "audit", name: "Audit", icon: "audit", key: "l", needs: "platform:audit:read" },
    shows: AuditPage,
  },
] satisfies Omit<PageEntry, "group" | "area">[];

const inGroup = (group: PageGroup, of: readonly Omit<PageEntry, "group">[]): PageEntry[] =>
  of.map((page) => ({ ...page, group }));

/** Every page. A page joins the navigation, the palette, the keys and the search by a row here. */
export const pages: readonly PageEntry[] = [
  ...inGroup("Work", [
    {
      ...{ path: "overview", name: "Overview", icon: "overview", key: "o", needs: "runs:read" },
      shows: OverviewPage,
    },
    {
      ...{ path: "runs", name: "Runs", icon: "runs", key: "r", needs: "runs:read" },
      ...{ shows: RunsPage, one: { shows: RunPage, prefix: "run_" } },
    },
    {
      ...{ path: "functions", name: "Functions", icon: "functions", key: "f", needs: "functions:list" },
      ...{ shows: FunctionsPage, one: { shows: FunctionPage } },
    },
    {
      ...{ path: "schedules", name: "Schedules", icon: "clock", key: "1", needs: "functions:read" },
      shows: SchedulesPage,
    },
    {
      ...{ path: "events", name: "Events", icon: "events", key: "e", needs: "events:subscribe" },
      ...{ shows: EventsPage, one: { shows: EventPage, prefix: "evt_" } },
    },
    {
      ...{ path: "map", name: "Flow map", icon: "map", key: "z", needs: "functions:read" },
      shows: MapPage,
    },
    {
      ...{ path: "repairs", name: "Repairs", icon: "repairs", key: "p", needs: "runs:read" },
      ...{ shows: RepairsPage, one: { shows: RepairPage, prefix: "rep_" } },
    },
  ]),
  ...inGroup("Data", [
    {
      ...{ path: "streams", name: "Streams", icon: "streams", key: "m", needs: "entities:read" },
      ...{ shows: StreamsPage, one: { shows: StreamPage } },
    },
    {
      ...{
        path: "projections",
        name: "Projections",
        icon: "projections",
        key: "j",
        needs: "projections:read",
      },
      ...{ shows: ProjectionsPage, one: { shows: ProjectionPage } },
    },
    {
      ...{ path: "schemas", name: "Schemas", icon: "schemas", key: "h", needs: "schemas:read" },
      ...{ shows: SchemasPage, one: { shows: SchemaPage } },
    },
    {
      ...{ path: "sql", name: "SQL", icon: "sql", key: "v", needs: "projections:read" },
      shows: SqlPage,
    },
    {
      ...{ path: "kv", name: "Key-value", icon: "kv", key: "k", needs: "secrets:read" },
      ...{ shows: BucketsPage, one: { shows: BucketPage } },
    },
    {
      ...{ path: "config", name: "Config", icon: "config", key: "c", needs: "secrets:read" },
      ...{ shows: ConfigsPage, one: { shows: ConfigPage } },
    },
    {
      ...{ path: "secrets", name: "Secrets", icon: "secrets", key: "s", needs: "secrets:read" },
      ...{ shows: SecretsPage, one: { shows: SecretPage } },
    },
  ]),
  ...inGroup("Connections", [
    {
      ...{ path: "topics", name: "Topics", icon: "topics", key: "t", needs: "events:subscribe" },
      ...{ shows: TopicsPage, one: { shows: TopicPage } },
    },
    {
      ...{ path: "groups", name: "Groups", icon: "groups", key: "g", needs: "events:subscribe" },
      ...{ shows: GroupsPage, one: { shows: GroupPage } },
    },
    {
      ...{ path: "webhooks-in", name: "Webhooks in", icon: "incoming", key: "b", needs: "webhooks:read" },
      ...{ shows: SourcesPage, one: { shows: SourcePage, prefix: "whs_" } },
    },
    {
      ...{ path: "webhooks-out", name: "Webhooks out", icon: "outgoing", key: "x", needs: "webhooks:read" },
      ...{ shows: EndpointsPage, one: { shows: EndpointPage, prefix: "whe_" } },
    },
    {
      ...{ path: "tools", name: "Agent tools", icon: "tools", key: "a", needs: "agent:tools:read" },
      ...{ shows: ToolsPage, one: { shows: ToolPage } },
    },
  ]),
  ...inGroup("Operation", [
    {
      ...{ path: "alerts", name: "Alerts", icon: "alert", key: "2", needs: "alerts:read" },
      shows: AlertsPage,
    },
    {
      ...{ path: "dead-letters", name: "Dead letters", icon: "dead", key: "d", needs: "events:subscribe" },
      shows: DeadLettersPage,
    },
    {
      ...{ path: "quotas", name: "Quotas", icon: "quotas", key: "q", needs: "functions:list" },
      shows: QuotasPage,
    },
    {
      ...{ path: "usage", name: "Usage", icon: "streams", key: "3", needs: "usage:read" },
      shows: UsagePage,
    },
    {
      ...{ path: "workers", name: "Workers", icon: "workers", key: "w", needs: "functions:read" },
      shows: WorkersPage,
    },
    {
      ...{ path: "cluster", name: "Cluster", icon: "cluster", key: "n", needs: "runs:read" },
      shows: ClusterPage,
    },
    {
      ...{ path: "integrity", name: "Integrity", icon: "integrity", key: "i", needs: "runs:read" },
      shows: IntegrityPage,
    },
    {
      ...{ path: "access", name: "Access", icon: "access", key: "u", needs: "" },
      shows: AccessPage,
    },
    {
      ...{ path: "policies", name: "Policies", icon: "filter", key: "y", needs: "orgs:read" },
      ...{ shows: PoliciesPage, one: { shows: PolicyPage, prefix: "pol_" } },
    },
    {
      ...{ path: "audit", name: "Audit", icon: "audit", key: "l", needs: "orgs:read" },
      shows: AuditPage,
    },
  ]),
  ...platformPages.map((page): PageEntry => ({ ...page, group: "Platform", area: "platform" })),
];

/** Whether the viewer may see it there: at home, a user of the platform has only the platform's pages. */
export function isOffered({ needs, area }: PageEntry): boolean {
  return (needs === "" || may(needs)) && (area === "platform") === isAtHome();
}

/** The page of a path: of two, that which is offered. */
export const pageAt = (path: string): PageEntry | undefined =>
  pages.find((page) => page.path === path && isOffered(page)) ?? pages.find((page) => page.path === path);

/** The pages that are offered, by the parts of the navigation. */
export const offeredPages = (): PageEntry[] => pages.filter(isOffered);
