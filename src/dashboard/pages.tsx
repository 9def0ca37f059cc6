import type { ComponentType } from "preact";
import { EventPage } from "./pages/events/event.tsx";
import { EventsPage } from "./pages/events/events.tsx";
import { FunctionPage } from "./pages/functions/function.tsx";
import { FunctionsPage } from "./pages/functions/functions.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { ProjectionPage } from "./pages/projections/projection.tsx";
import { ProjectionsPage } from "./pages/projections/projections.tsx";
import { RepairPage } from "./pages/repairs/repair.tsx";
import { RepairsPage } from "./pages/repairs/repairs.tsx";
import { RunPage } from "./pages/run/run.tsx";
import { RunsPage } from "./pages/runs/runs.tsx";
import { WorkersPage } from "./pages/workers.tsx";
import type { IconName } from "./ui/icons.tsx";

/** One page of the dashboard. */
export interface PageEntry {
  /** Its place in the address, behind the org and the environment. */
  path: string;
  name: string;
  icon: IconName;
  /** Pressed behind `g`. */
  key: string;
  /** The action without which it is not offered. */
  needs: string;
  shows: ComponentType;
  /** What `path/{id}` shows, and how ids of that kind begin. */
  one?: { shows: ComponentType; prefix?: string };
}

/** Every page. A page joins the navigation, the palette, the keys and the search by a row here. */
export const pages: readonly PageEntry[] = [
  {
    ...{ path: "overview", name: "Overview", icon: "overview", key: "o", needs: "runs:read" },
    shows: OverviewPage,
  },
  {
    ...{ path: "runs", name: "Runs", icon: "runs", key: "r", needs: "runs:read" },
    shows: RunsPage,
    one: { shows: RunPage, prefix: "run_" },
  },
  {
    ...{ path: "functions", name: "Functions", icon: "functions", key: "f", needs: "functions:list" },
    shows: FunctionsPage,
    one: { shows: FunctionPage },
  },
  {
    ...{ path: "events", name: "Events", icon: "events", key: "e", needs: "events:subscribe" },
    shows: EventsPage,
    one: { shows: EventPage, prefix: "evt_" },
  },
  {
    ...{ path: "projections", name: "Projections", icon: "projections", key: "j", needs: "projections:read" },
    shows: ProjectionsPage,
    one: { shows: ProjectionPage },
  },
  {
    ...{ path: "repairs", name: "Repairs", icon: "repairs", key: "p", needs: "runs:read" },
    shows: RepairsPage,
    one: { shows: RepairPage, prefix: "rep_" },
  },
  {
    ...{ path: "workers", name: "Workers", icon: "workers", key: "w", needs: "functions:read" },
    shows: WorkersPage,
  },
];
