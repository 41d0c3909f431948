package etcd

import (
	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger returns a zap logger that writes to log, so that etcd's lines look like everybody's.
func newLogger(log logr.Logger, level zapcore.Level) *zap.Logger {
	return zap.New(&core{LevelEnabler: level, log: log})
}

type core struct {
	zapcore.LevelEnabler
	log logr.Logger
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{LevelEnabler: c.LevelEnabler, log: c.log.WithValues(keysAndValues(fields)...)}
}

func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if entry.Level >= zapcore.ErrorLevel {
		c.log.Error(nil, entry.Message, keysAndValues(fields)...)
	} else {
		c.log.Info(entry.Message, keysAndValues(fields)...)
	}
	return nil
}

func (c *core) Sync() error { return nil }

func keysAndValues(fields []zapcore.Field) []any {
	encoder := zapcore.NewMapObjectEncoder()
	out := make([]any, 0, 2*len(fields))
	for _, f := range fields {
		f.AddTo(encoder)
		if v, ok := encoder.Fields[f.Key]; ok {
			out = append(out, f.Key, v)
		}
	}
	return out
}
