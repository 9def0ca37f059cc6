import { type TSchema, Type } from "@sinclair/typebox";

/** The schema with words for those who write clients: shape, unit and bounds of one field. */
export const described = <S extends TSchema>(schema: S, description: string): S => ({
  ...schema,
  description,
});

/** A field and its words. */
export const shape = {
  text: (description: string) => Type.String({ description }),
  count: (description: string) => Type.Integer({ description }),
  number: (description: string) => Type.Number({ description }),
  flag: (description: string) => Type.Boolean({ description }),
  time: (description: string) => Type.String({ format: "date-time", description }),
};

/** The same of a field that may be absent. */
export const maybe = {
  text: (description: string) => Type.Optional(shape.text(description)),
  count: (description: string) => Type.Optional(shape.count(description)),
  number: (description: string) => Type.Optional(shape.number(description)),
  flag: (description: string) => Type.Optional(shape.flag(description)),
  time: (description: string) => Type.Optional(shape.time(description)),
};
