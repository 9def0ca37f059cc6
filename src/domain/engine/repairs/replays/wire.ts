import { PreviewReplayResponseSchema } from "../../../../gen/svc/v1/repair_pb.ts";
import { rfc3339 } from "../../../../kit/clock.ts";
import { messageOf } from "../../../../kit/wkt.ts";
import type { ReplayPreview } from "./service.ts";

export const replayPreviewJson = ({ samples, ...preview }: ReplayPreview) => ({
  ...{ from_position: preview.from, to_position: preview.to, scanned: preview.scanned },
  ...{ truncated: preview.isTruncated, matched: preview.matched, with_run: preview.withRun },
  to_start: preview.toStart,
  samples: samples.map(({ id, name, position, at, hasRun }) => ({
    ...{ event_id: id, name, position, at: rfc3339(at), has_run: hasRun },
  })),
});

export const toReplayPreview = (preview: ReplayPreview) =>
  messageOf(PreviewReplayResponseSchema)(replayPreviewJson(preview));
