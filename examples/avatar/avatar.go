// One image from thumbcached, in Go, with redigo (apt install golang-go golang-github-gomodule-redigo-dev).
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go build avatar.go && ./avatar USER PROFILE COPY [IMAGE]
//
// Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
// verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
// Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// end exits with a message, if any.
func end(status int, reason error) {
	if reason != nil {
		fmt.Fprintln(os.Stderr, "avatar:", reason)
		os.Exit(status)
	}
}

func main() {
	if len(os.Args) != 4 && len(os.Args) != 5 {
		end(2, errors.New("usage: avatar USER PROFILE COPY [IMAGE]"))
	}
	user, profile, target := os.Args[1], os.Args[2], os.Args[3]
	path, isSet := os.LookupEnv("THUMBCACHED_SOCKET")
	if !isSet {
		path = "/run/thumbcached/thumbcached.sock"
	}
	daemon, err := redis.Dial("unix", path)
	end(1, err)

	// With HOLD, the cache ends at the logout or with this connection.
	_, err = daemon.Do("LOGIN", user, "HOLD")
	end(1, err)
	if len(os.Args) == 5 {
		file, err := os.ReadFile(os.Args[4])
		end(1, err)
		_, err = daemon.Do("PUT", user, profile, file)
		end(1, err)
	}
	// Bytes returns an error for a null reply.
	image, missing := redis.Bytes(daemon.Do("GET", user, profile))
	if missing != redis.ErrNil {
		end(1, missing)
		end(1, os.WriteFile(target, image, 0o666))
		fmt.Printf("%d bytes written to %s\n", len(image), target)
	}

	// The receipt, an array of names and values, confirms that nothing can be read any more.
	receipt, err := redis.Values(daemon.Do("LOGOUT", user))
	end(1, err)
	for i := 0; i+1 < len(receipt); i += 2 {
		if name, _ := redis.String(receipt[i], nil); name == "users" {
			fmt.Printf("caches ended: %d\n", receipt[i+1])
		}
	}
	_, err = daemon.Do("GET", user, profile)
	if err == nil || !strings.HasPrefix(err.Error(), "NOLOGIN") {
		end(1, errors.New("the cache still exists"))
	}
	fmt.Println("after logout: NOLOGIN")
	if missing != nil {
		end(4, errors.New("no image"))
	}
}
