package etcd

import (
	"sync/atomic"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger returns a zap logger that writes errors to log, so that etcd's lines look like all others. Warnings are
// logged only at -v=1, because a single member warns of being one. So are errors once closing is set: every listener
// then reports its end as an error.
func newLogger(log logr.Logger, closing *atomic.Bool) *zap.Logger {
	return zap.New(&core{LevelEnabler: zapcore.WarnLevel, log: log, closing: closing})
}

type core struct {
	zapcore.LevelEnabler
	log     logr.Logger
	closing *atomic.Bool
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{LevelEnabler: c.LevelEnabler, log: c.log.WithValues(keysAndValues(fields)...), closing: c.closing}
}

func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if entry.Level >= zapcore.ErrorLevel && !c.closing.Load() {
		c.log.Error(nil, entry.Message, keysAndValues(fields)...)
	} else {
		c.log.V(1).Info(entry.Message, keysAndValues(fields)...)
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
