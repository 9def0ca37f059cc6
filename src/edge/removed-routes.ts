import type { DescMethod } from "@bufbuild/protobuf";
import { EntityStreamService } from "../gen/svc/v1/entity_stream_pb.ts";
import { ProjectionService } from "../gen/svc/v1/projection_pb.ts";
import { SvcService } from "../gen/svc/v1/svc_pb.ts";

const svc = SvcService.method;
const streams = EntityStreamService.method;
const projections = ProjectionService.method;

/** Routes that clients of older generations call, under `/api/v1`, and the RPC that does the same. */
export const removedRoutes: Readonly<Record<string, DescMethod>> = {
  "GET /functions": svc.listFunctions,
  "GET /runs": svc.listRuns,
  "POST /runs/resume": svc.resumeRun,
  "POST /events": svc.emit,
  "POST /steps/patch": svc.patchStep,
  "GET /streams": streams.listStreams,
  "GET /streams/{id}/history": streams.getEntityHistory,
  "GET /projections": projections.listProjections,
  "GET /projections/{name}/status": projections.getProjectionStatus,
  "POST /projections/{name}/rebuild": projections.rebuildProjection,
  "GET /projections/{name}/rebuild": projections.getRebuildJob,
  "POST /projections/{name}/pause": projections.pauseProjection,
  "POST /projections/{name}/resume": projections.resumeProjection,
  "POST /projections/{name}/cancel": projections.cancelRebuild,
  "GET /projections/{name}/catchup": projections.waitProjectionCatchup,
  "POST /projections/catchup/batch": projections.waitProjectionCatchupBatch,
  "POST /projections/wait-for-event": projections.waitForEvent,
};

const tests = Object.entries(removedRoutes).map(([route, method]) => ({
  test: new RegExp(`^${route.replace(" /", " /api/v1/").replace(/\{\w+\}/g, "[^/]+")}/?$`),
  method,
}));

/** The path of the RPC that took the route's place. */
export function rpcInPlaceOf(method: string, pathname: string): string | undefined {
  const found = tests.find(({ test }) => test.test(`${method} ${pathname}`))?.method;
  return found && `/${found.parent.typeName}/${found.name}`;
}
