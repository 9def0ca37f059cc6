import { shownText } from "../kit/shown-text.ts";
import type { Delivery } from "../sdk/index.ts";

/** For programs: every field that is there, in one order. */
export const jsonLine = ({ topic, sequence, eventId, timestamp, metadata, data }: Delivery): string =>
  JSON.stringify({ topic, sequence, eventId, timestamp, metadata, data });

const dim = "\u001b[2m";
const strong = "\u001b[1m";
const plain = "\u001b[0m";

/** For people: local time, topic, sequence, data, and metadata when there is any. */
export const prettyLine = (hasColours: boolean) => {
  const paint = (colour: string, text: string) => (hasColours ? colour + text + plain : text);
  return ({ topic, sequence, timestamp, metadata, data }: Delivery): string => {
    const at = timestamp === undefined ? "" : new Date(timestamp);
    const two = (value: number, digits = 2) => String(value).padStart(digits, "0");
    const time =
      at === ""
        ? "--:--:--.---"
        : `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
    const place = sequence === undefined ? "" : ` ${paint(dim, `#${sequence}`)}`;
    const json = (value: unknown) => shownText(JSON.stringify(value));
    const more = metadata && Object.keys(metadata).length > 0 ? `  ${paint(dim, json(metadata))}` : "";
    return `${paint(dim, time)}  ${paint(strong, shownText(topic))}${place}  ${json(data)}${more}`;
  };
};
