import { useEffect, useRef, useState } from "preact/hooks";
import type { LiveState } from "./live.ts";
import { socketUrl } from "./live.ts";

const protocol = "svc.v1";
const delayMs = 1_000;
const longestDelayMs = 15_000;
/** Ends of a watch that say nothing about it: a later try may succeed. */
const passing = ["unavailable", "resource_exhausted", "internal", "deadline_exceeded"];

/**
 * A path that only sends, such as a bucket's changes, on a socket of its own, which reconnects when it is
 * lost. `path` is called for each connection, to name the place to continue at. An empty path opens nothing.
 */
export function useWatch<Frame extends { type: string }>(
  path: () => string,
  key: string,
  onFrame: (frame: Frame) => void,
): LiveState | "refused" {
  const [state, setState] = useState<LiveState | "refused">("connecting");
  const latest = useRef({ path, onFrame });
  latest.current = { path, onFrame };
  useEffect(() => {
    if (key === "") return;
    let attempts = 0;
    let socket: WebSocket | undefined;
    let retry: ReturnType<typeof setTimeout> | undefined;
    let isRefused = false;
    const open = () => {
      const opened = new WebSocket(socketUrl(latest.current.path()), [protocol]);
      socket = opened;
      opened.onopen = () => {
        attempts = 0;
        setState("live");
      };
      opened.onmessage = ({ data }) => {
        const frame = JSON.parse(data as string) as Frame & { code?: string };
        if (frame.type === "error") isRefused = !passing.includes(frame.code ?? "");
        else latest.current.onFrame(frame);
      };
      opened.onclose = () => {
        if (socket !== opened) return;
        setState(isRefused ? "refused" : "lost");
        if (isRefused) return;
        retry = setTimeout(open, Math.min(longestDelayMs, delayMs * 2 ** attempts++));
      };
    };
    open();
    return () => {
      clearTimeout(retry);
      const last = socket;
      socket = undefined;
      last?.close();
    };
  }, [key]);
  return state;
}
