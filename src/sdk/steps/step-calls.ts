import { knownOfEmit, whenFields } from "../client/client-events.ts";
import type { Tool } from "../client/tool-types.ts";
import { readToolAnswer, toolCallMs, toolMessage, toolName } from "../client/tools.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { dataFields, stepKey } from "../wire/payload.ts";
import { type Message, readEmitted } from "../wire/read.ts";
import { open } from "./course.ts";
import type { Execution } from "./step.ts";
import type { PublishOptions, Steps } from "./steps.ts";
import type { EventReader } from "./svc-function.ts";

const knownOfPublish: KnownOptions<PublishOptions> = { idempotencyKey: true };

/** Steps that call the server. By their idempotency key a step that runs again publishes or emits once. */
export function callSteps(
  execution: Execution,
  events: EventReader | undefined,
): Pick<Steps, "publish" | "emit" | "tool"> {
  async function callOnce<Result>(
    name: string,
    key: string | undefined,
    work: (key: string) => Promise<Result>,
  ): Promise<Result> {
    const step = execution.enter(name);
    if (!step) return open();
    return (await execution.perform(step, async () => work(key ?? (await stepKey(step.stepId))))) as Result;
  }

  return {
    async publish(topic, data, options = {}) {
      requireKnown(`step publish:${topic}`, options, knownOfPublish);
      return callOnce(`publish:${topic}`, options.idempotencyKey, async (key) => {
        const message = { topic, ...dataFields(data), idempotencyKey: key };
        const answer = await execution.host.call<Message>("PubSubService/Publish", message);
        return { eventId: String(answer.eventId), sequence: Number(answer.sequence ?? 0) };
      });
    },

    async tool(tool: Tool | string, input?: unknown) {
      const name = `tool.${toolName(tool)}`;
      const step = execution.enter(name);
      if (!step) return open();
      return (await execution.perform(step, async ({ signal }) =>
        readToolAnswer(
          await execution.host.call<Message>("AgentToolsService/InvokeTool", toolMessage(tool, input), {
            ...{ repeatable: false, timeoutMs: toolCallMs, signal },
          }),
        ),
      )) as never;
    },

    async emit(event, data, options = {}) {
      requireKnown(`step emit.${event}`, options, knownOfEmit);
      const { idempotencyKey, metadata, version, ...when } = options;
      return callOnce(`emit.${event}`, idempotencyKey, async (key) => {
        const checked = events ? await events.check(event, data) : data;
        const currentVersion = version ?? events?.version(event);
        const message = {
          event,
          ...dataFields(checked),
          idempotencyKey: key,
          ...(metadata !== undefined && { metadata }),
          ...(currentVersion !== undefined && { version: currentVersion }),
          ...whenFields(when),
        };
        return readEmitted(await execution.host.call<Message>("SvcService/Emit", message));
      });
    },
  };
}
