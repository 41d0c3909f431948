package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/regent-project/regent/pkg/server/status"
)

// Finalize has a shard go on to a format. Any replica of it may be asked, and asking again does no harm.
func (c *Client) Finalize(ctx context.Context, of status.Installation, shard string, to int) (now status.Upgrade, err error) {
	body, err := json.Marshal(status.Finalize{To: to})
	if err != nil {
		return now, err
	}
	err = fmt.Errorf("no replica of shard %s can be asked from here: none has told its URL", shard)
	for _, place := range c.shard(of, shard) {
		if err = place.do(ctx, http.MethodPost, status.FormatPath, body, &now); err == nil {
			return now, nil
		}
	}
	return now, fmt.Errorf("shard %s is not taken on to format %d: %w", shard, to, err)
}
