import { useEffect, useState } from "preact/hooks";
import type { LaidOut, LayoutQuestion } from "./layers.ts";

let worker: Worker | undefined;
let asked = 0;

interface ScriptPolicies {
  createPolicy(
    name: string,
    rules: { createScriptURL(path: string): string },
  ): { createScriptURL(path: string): string };
}

const ownWorker = /^\/dashboard\/assets\/layout-worker-\w+\.js$/;

/** Browsers with Trusted Types start a worker only by a path that a policy has let through. */
function trusted(path: string): string {
  const policies = (globalThis as { trustedTypes?: ScriptPolicies }).trustedTypes;
  if (!ownWorker.test(path)) throw new TypeError("no worker of this dashboard");
  return policies
    ? policies.createPolicy("svc-worker", { createScriptURL: () => path }).createScriptURL(path)
    : path;
}

/** Begun when the first drawing is wanted; the page names its file, as the file's name changes with its content. */
function layoutWorker(): Worker {
  worker ??= new Worker(
    trusted(document.querySelector<HTMLMetaElement>('meta[name="layout-worker"]')!.content),
    { type: "module" },
  );
  return worker;
}

/** The drawing of these nodes and lines once it is worked out, and until then the one before. */
export function useLayout(question: LayoutQuestion): LaidOut | undefined {
  const [laid, setLaid] = useState<LaidOut>();
  const shape = JSON.stringify(question);
  useEffect(() => {
    const number = ++asked;
    const thread = layoutWorker();
    const onAnswer = ({ data }: MessageEvent<{ number: number; laid: LaidOut }>) => {
      if (data.number === number) setLaid(data.laid);
    };
    thread.addEventListener("message", onAnswer);
    thread.postMessage({ ...question, number });
    return () => thread.removeEventListener("message", onAnswer);
  }, [shape]);
  return laid;
}
